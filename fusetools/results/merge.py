"""Result of `fusetools merge`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Merged:
    """Number of records written. ``warnings``: omissions and corrections, one line each."""

    records: int
    warnings: tuple[str, ...]
