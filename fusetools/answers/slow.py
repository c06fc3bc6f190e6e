"""The slowest requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from fusetools import core
from fusetools.answers import helpers
from fusetools.answers.catalogue import with_stacks
from fusetools.answers.filters import Filters
from fusetools.answers.operations import operations
from fusetools.answers.requests import RequestQuery, gather, guessed, meanwhile, request, work_span
from fusetools.answers.source import Source
from fusetools.patterns import expression
from fusetools.results.slow import SlowCall, Slowest


def slow(
    source: Source,
    patterns: Sequence[str],
    most: int,
    least: int,
    filters: Filters,
    path: str | None = None,
) -> Slowest:
    """Return the slowest requests; the arguments as in Recording.slowest()."""
    query = RequestQuery(source)
    query.probes = with_stacks(query.probes, source.described["stacks"])
    wanted = operations(patterns, source.path), least, None if path is None else expression(path)
    answer, facts = query(core.native.slowest, filters, wanted, query.names.mounts, most)
    rows = answer["kept"]
    spans = [work_span(fields) for fields in rows]
    gathered = partial(gather, answer["threads"])
    moments = gathered(spans)
    connected = [query.connections(fields, answer["peers"]) for fields in rows]
    chains = helpers.chains(spans, moments, gathered, query.probes, connected)
    meanwhiles = (
        meanwhile(fields, did, query.probes, connections)
        for fields, did, connections in zip(rows, moments, connected)
    )
    requests = (
        helpers.with_helpers(request(fields, answer["first"], query.names, own), chain)
        for fields, own, chain in zip(rows, meanwhiles, chains)
    )
    pathless = None if path is None else answer["pathless"]
    calls = tuple(_call(row, answer["first"], source.mount_points) for row in answer["calls"])
    return Slowest(tuple(requests), guessed(query.probes), facts, pathless, calls)


def _call(row: core.native.SlowCall, first: int, mounts: Mapping[int, str]) -> SlowCall:
    connection = row["connection"]
    outside = {name: ns for name, ns in row["outside"].items() if ns}
    return SlowCall(
        syscall=row["syscall"],
        mount=None if connection is None else mounts.get(connection, connection),
        pid=row["pid"],
        tid=row["tid"],
        comm=row["comm"],
        start_ns=row["start"] - first,
        duration_ns=row["duration"],
        in_requests_ns=row["duration"] - sum(outside.values()),
        outside_ns=outside,
        returned=row["returned"],
    )
