"""A recording that a flight recorder has written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusetools.results.record import Outcome
from fusetools.results.units import Seconds


@dataclass
class Written(Outcome):
    """``why``: the reason for writing it; it holds ``seconds`` of the ``wanted_seconds`` ones;
    ``account``: what `fusetools stuck --json` would have printed at that moment."""

    why: str = ""
    wanted_seconds: Seconds = 0.0
    account: Path | None = None
