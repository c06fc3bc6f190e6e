"""Error replies by operation."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions, selected
from fusetools.answers.requests import (
    RequestQuery,
    aborter,
    error_name,
    guessed,
    signal_name,
)
from fusetools.answers.source import Source
from fusetools.results.errors import (
    Aborted,
    Answered,
    Contradicted,
    Dropped,
    Errors,
    Interrupts,
    OperationErrors,
    Refused,
)


def errors(source: Source, patterns: Sequence[str], filters: Filters) -> Errors:
    """Count error replies by operation; ``patterns`` are shell patterns of operations."""
    expressions(patterns, source.path)  # raises its error before the pass over the recording
    query = RequestQuery(source)
    answer, facts = query(core.native.errors, filters)
    exact = not guessed(query.probes)
    rows = []
    for operation, answered, negative, counts, unanswered in answer["operations"]:
        if not selected(operation, patterns):
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

    def asked(operation: str) -> bool:
        return selected(operation, patterns)

    refused = (
        Refused(operation, error_name(number), n, tuple(numbers), waiting)
        for operation, number, (n, numbers, waiting) in answer["refused"]
        if asked(operation)
    )
    dropped = (
        Dropped(operation, n, tuple(numbers), waiting)
        for operation, (n, numbers, waiting) in answer["dropped"]
        if asked(operation)
    )
    aborted = (
        Aborted(*aborter(daemon, comm, pid, call), n)
        for pid, comm, call, daemon, n in answer["aborted"]
    )
    contradicted = (
        Contradicted(call, error_name(number), operation, n)
        for call, number, operation, n in answer["contradicted"]
        if asked(operation)
    )
    return Errors(
        tuple(rows),
        facts,
        tuple(Answered(name, calls) for name, calls in gone),
        refused=tuple(sorted(refused, key=lambda row: (-row.requests, row[:2]))),
        dropped=tuple(sorted(dropped, key=lambda row: (-row.requests, row.operation))),
        aborted=tuple(sorted(aborted, key=lambda row: (-row.requests, row.comm, row.pid))),
        interrupts=tuple(row for row in _interrupts(answer) if asked(row.operation)),
        contradicted=tuple(sorted(contradicted, key=lambda row: (-row.calls, row[:3]))),
    )


def interrupts(source: Source, filters: Filters, of: Container[str]) -> tuple[Interrupts, ...]:
    """Return the requests of these operations whose callers got signals, most requests first."""
    answer, _ = RequestQuery(source)(core.native.errors, filters)
    return tuple(row for row in _interrupts(answer) if row.operation in of)


def _interrupts(answer: core.native.Errors) -> Iterable[Interrupts]:
    rows = (
        Interrupts(operation, comm, signal_name(number), *counts)
        for operation, comm, number, counts in answer["interrupts"]
    )
    return sorted(rows, key=lambda row: (-row.requests, row[:3]))
