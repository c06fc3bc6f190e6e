"""The type of facts that could not be recorded, for plans, recordings and answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """Facts that are not recorded, the reason, and the command that fixes it (may be empty).

    ``layer`` names the figures that are incomplete because of it: one of ``names.LAYERS``,
    "off_cpu" (waits of threads), "stacks" or "names" (of files). It is "" if the figures come from
    another source and are complete.
    """

    what: str
    why: str
    fix: str = ""
    layer: str = ""
