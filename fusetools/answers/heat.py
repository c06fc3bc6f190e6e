"""Latency over time."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions
from fusetools.answers.requests import RequestQuery
from fusetools.answers.source import Source
from fusetools.results.heat import Heat, HeatRow


def heat(source: Source, patterns: Sequence[str], filters: Filters, columns: int) -> Heat:
    """Return the requests of matching operations by begin and latency."""
    wanted = expressions(patterns, source.path)
    answer, facts = RequestQuery(source)(core.native.heat, filters, wanted, columns)
    rows = tuple(HeatRow(low, high, tuple(requests)) for low, high, requests in answer["rows"])
    if not rows:
        facts = source.with_removed(facts, filters, patterns)
    return Heat(filters.start_ns or 0, answer["column"], rows, facts)
