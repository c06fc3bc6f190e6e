"""The result of merging."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Merged:
    """The number of records written, and what was left out or corrected, a line each."""

    records: int
    warnings: tuple[str, ...]
