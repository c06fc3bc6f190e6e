"""Latency over time."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class HeatRow:
    """Requests with a latency from ``low_ns`` to ``high_ns``, both inclusive, by column."""

    low_ns: Ns
    high_ns: Ns
    requests: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Heat(Rows):
    """Requests by begin and by latency (begin to end), shortest latency first.

    Column 0 begins ``start_ns`` after the recording's first event, each other one ``column_ns``
    after the one before it."""

    start_ns: Ns
    column_ns: Ns
    rows: tuple[HeatRow, ...]
    facts: Facts

    ROWS = "rows"
    JSON_HIDDEN = ("facts",)
