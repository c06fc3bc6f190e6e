"""Error replies by operation."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import operations
from fusetools.answers.requests import RequestQuery, error_name, guessed
from fusetools.answers.source import Source
from fusetools.results.errors import Answered, Errors, OperationErrors


def errors(source: Source, patterns: Sequence[str], filters: Filters) -> Errors:
    """Count error replies by operation; ``patterns`` are shell patterns of operations."""
    wanted = operations(patterns, source.path)
    query = RequestQuery(source)
    answer, facts = query(core.native.errors, filters)
    exact = not guessed(query.probes)
    rows = []
    for operation, answered, negative, counts, unanswered in answer["operations"]:
        if wanted and operation not in wanted:
            continue
        by_name = sorted(
            (Answered(error_name(number), n) for number, n in counts), key=lambda e: -e[1]
        )
        known = negative if operation == "lookup" and exact else None
        rows.append(
            OperationErrors(
                operation,
                answered,
                tuple(by_name),
                known,
                tuple(Answered(*fate) for fate in unanswered),
            )
        )
    rows.sort(
        key=lambda row: (
            -(row.failed + (row.negative or 0) + sum(n for _, n in row.unanswered)),
            -row.requests,
            row.operation,
        )
    )
    gone = sorted(answer["disconnected"], key=lambda row: (-row[1], row[0]))
    return Errors(tuple(rows), facts, tuple(Answered(name, calls) for name, calls in gone))
