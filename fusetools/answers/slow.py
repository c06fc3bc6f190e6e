"""The slowest requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fusetools import core
from fusetools.answers import helpers
from fusetools.answers.filters import Filters
from fusetools.answers.operations import operations
from fusetools.answers.requests import RequestQuery, gather, guessed, meanwhile, request, work_span
from fusetools.answers.source import Source
from fusetools.patterns import expression
from fusetools.results.slow import Slowest


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
    return Slowest(tuple(requests), guessed(query.probes), facts, pathless)
