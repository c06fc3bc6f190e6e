"""What could not be recorded: one type for plans, recordings and answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """What is not recorded, why, and the command that would bring it (may be empty).

    ``layer``: whose figures lack something for it: one of the layers (``names.LAYERS``), "off_cpu"
    (what threads waited for), "stacks", "names" (of files); "" where nothing is lacking but is
    got otherwise.
    """

    what: str
    why: str
    fix: str = ""
    layer: str = ""
