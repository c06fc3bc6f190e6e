"""Result of `fusetools export`."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.reasons import Reason
from fusetools.results.facts import Facts


@dataclass(frozen=True)
class Exported:
    """A written file. ``requests``: number of its requests.

    ``stateless``: why a trace has no states of threads; "" if it has."""

    path: str
    requests: int
    stateless: str
    facts: Facts


@dataclass(frozen=True)
class Tables:
    """Tables written as Parquet files below the folder ``path``.

    ``rows``: number of rows by table; ``missing``: why other tables were not written.
    """

    path: str
    host: str
    date: str
    rows: dict[str, int]
    missing: tuple[Reason, ...]
    facts: Facts
