"""What could not be recorded: one type for plans, recordings and answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """What is not recorded, why, and the command that fixes it (may be empty).

    ``layer``: whose figures are incomplete because of it: one of the layers (``names.LAYERS``),
    "off_cpu" (what threads waited for), "stacks", "names" (of files); "" if the figures come from
    elsewhere and lack nothing.
    """

    what: str
    why: str
    fix: str = ""
    layer: str = ""
