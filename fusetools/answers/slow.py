"""The slowest requests."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools import core
from fusetools.answers import helpers
from fusetools.answers.filters import Filters
from fusetools.answers.operations import operations
from fusetools.answers.requests import Questions, at_work, guessed, meanwhile, request
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
    """``most`` of them, of the operations that a shell pattern matches, that took ``least`` ns or
    more, slowest first; ``path``: a shell pattern for the whole path ("*" matches "/", too).

    Those that have not ended count up to the recording's end.
    """
    asked = Questions(source)
    wanted = operations(patterns, source.path), least, None if path is None else expression(path)
    found, facts = asked(core.native.slowest, filters, wanted, asked.names.mounts, most)
    kept = found["kept"]
    spans = [at_work(one) for one in kept]
    moments = asked.moments(spans)
    chains = helpers.chains(spans, moments, asked.moments, asked.probes)
    requests = (
        helpers.helped(
            request(one, found["first"], asked.names, meanwhile(one, did, asked.probes)), chain
        )
        for one, did, chain in zip(kept, moments, chains)
    )
    pathless = None if path is None else found["pathless"]
    return Slowest(tuple(requests), guessed(asked.probes), facts, pathless)
