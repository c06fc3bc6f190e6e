"""A recording that a flight recorder has written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusetools.results.record import Outcome
from fusetools.results.units import Seconds


@dataclass
class Written(Outcome):
    """``why`` it was written; ``seconds`` are in it, of ``wanted``; ``account``: what `fusetools
    stuck --json` would have said at that moment."""

    why: str = ""
    wanted: Seconds = 0.0
    account: Path | None = None
