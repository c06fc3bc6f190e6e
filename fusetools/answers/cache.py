"""The kernel's caches: what they save, as far as a recording shows it."""

from __future__ import annotations

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.requests import RequestQuery
from fusetools.answers.source import Source
from fusetools.results.cache import AskedAgain, Cache, CachedCalls, Saved, Transfer


def cache(source: Source, filters: Filters) -> Cache:
    """Return what the kernel's caches saved, and what they did not."""
    query = RequestQuery(source)
    answer, facts = query(core.native.caches, filters)
    asked = ({**row, "saved": tuple(Saved(*of) for of in row["saved"])} for row in answer["asked"])
    return Cache(
        calls=tuple(CachedCalls(**row) for row in answer["calls"]),
        asked=tuple(AskedAgain(**row) for row in asked),
        transfers=tuple(Transfer(**row) for row in answer["transfers"]),
        unknown=answer["unknown"],
        facts=source.with_missing_detail(facts),
    )
