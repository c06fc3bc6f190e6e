"""What was merged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Merged:
    """What was written: records, and what was left out or put right, a line each."""

    records: int
    warnings: tuple[str, ...]
