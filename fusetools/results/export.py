"""What was written for other programs."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts


@dataclass(frozen=True)
class Exported:
    path: str
    requests: int
    facts: Facts
