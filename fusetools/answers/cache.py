"""The kernel's caches: what they save, as far as a recording shows it."""

from __future__ import annotations

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.requests import RequestQuery
from fusetools.answers.source import Source
from fusetools.results.cache import AskedAgain, Cache, CachedCalls, Saved, Transfer


def cache(source: Source, filters: Filters) -> Cache:
    """Return what the kernel's caches saved, and what they did not."""
    timeouts = [ns / 1e9 for ns in core.native.TIMEOUTS]
    query = RequestQuery(source)
    answer, facts = query(core.native.caches, filters)
    calls = (
        CachedCalls(
            syscall=row.syscall,
            calls=row.none + row.one + row.several,
            none=row.none if row.seen else None,
            one=row.one,
            several=row.several,
            requests=row.requests,
        )
        for row in answer["calls"]
    )
    asked = (
        AskedAgain(
            operation=row.operation,
            negative=row.negative,
            requests=row.requests,
            total_ns=row.ns,
            questions=row.keys,
            again=row.again,
            soonest_ns=row.soonest,
            p50_ns=row.p50,
            p99_ns=row.p99,
            saved=tuple(map(Saved, timeouts, row.saved)),
        )
        for row in answer["asked"]
    )
    transfers = (
        Transfer(
            operation=row.operation,
            waits=row.waits,
            requests=row.requests,
            sized=row.sized,
            total_bytes=row.bytes,
            largest_bytes=row.largest,
            followed=row.placed,
            in_order=row.in_order,
            again_bytes=row.again if row.operation == "read" else None,
        )
        for row in answer["transfers"]
    )
    return Cache(
        calls=tuple(sorted(calls, key=lambda row: (-row.calls, row.syscall))),
        asked=tuple(asked),
        transfers=tuple(transfers),
        unknown=answer["unknown"],
        facts=source.with_missing_detail(facts),
    )
