"""Result of a snapshot of the flight recorder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusetools.results.record import Outcome
from fusetools.results.units import Seconds


@dataclass
class Written(Outcome):
    """A snapshot. ``why``: the reason for writing it; ``wanted_seconds``: its requested length, of
    which it holds ``seconds``; ``account``: file with the output of `fusetools stuck --json`."""

    why: str = ""
    wanted_seconds: Seconds = 0.0
    account: Path | None = None
