"""Result of `fusetools export`."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts


@dataclass(frozen=True)
class Exported:
    """A written file. ``requests``: number of its requests.

    ``stateless``: why a trace has no states of threads; "" if it has."""

    path: str
    requests: int
    stateless: str
    facts: Facts
