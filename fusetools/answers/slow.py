"""The slowest requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions
from fusetools.answers.requests import RequestQuery, guessed, request, threads_of, with_starts
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
    query.probes = source.with_stacks(source.catalogue.named())
    wanted = expressions(patterns, source.path), least, None if path is None else expression(path)
    answer, facts = query(
        core.native.slowest, filters, wanted, query.names.mounts, query.connected, most
    )
    requests = [request(row, answer["first"], query.names) for row in answer["rows"]]
    starts = source.start_functions(tid for r in requests for tid in threads_of(r))
    requests = [with_starts(r, starts) for r in requests]
    pathless = None if path is None else answer["pathless"]
    calls = tuple(_call(row, source.mount_points) for row in answer["calls"])
    if not requests:
        facts = source.with_removed(facts, filters, patterns, least, path)
    return Slowest(tuple(requests), guessed(query.probes), facts, pathless, calls)


def _call(row: core.native.Fields, mounts: Mapping[int, str]) -> SlowCall:
    connection = row.pop("connection")
    mount = None if connection is None else mounts.get(connection, connection)
    return SlowCall(mount=mount, **row)
