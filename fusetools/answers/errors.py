"""Error replies by operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions, selected
from fusetools.answers.requests import (
    RequestQuery,
    aborter,
    error_name,
    guessed,
)
from fusetools.answers.source import Source
from fusetools.figures import signal_name
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
from fusetools.results.request import Aborter


def errors(source: Source, patterns: Sequence[str], filters: Filters) -> Errors:
    """Count error replies by operation; ``patterns`` are shell patterns of operations."""
    expressions(patterns, source.path)  # raises its error before the pass over the recording
    query = RequestQuery(source)
    answer, facts = query(core.native.errors, filters)
    exact = not guessed(query.probes)
    rows = []
    for of in answer["operations"]:
        if not selected(of["operation"], patterns):
            continue
        by_name = [Answered(error_name(number), n) for number, n in of["errors"]]
        by_name.sort(key=lambda error: -error.times)
        negative = of["negative"] if of["operation"] == "lookup" and exact else None
        unanswered = tuple(Answered(*fate) for fate in of["unanswered"])
        more = {"errors": tuple(by_name), "negative": negative, "unanswered": unanswered}
        rows.append(OperationErrors(**{**of, **more}))
    rows.sort(
        key=lambda row: (
            -(row.failed + (row.negative or 0) + sum(n for _, n in row.unanswered)),
            -row.requests,
            row.operation,
        )
    )
    if not rows:
        facts = source.with_removed(facts, filters, patterns)
    gone = sorted(answer["disconnected"], key=lambda row: (-row[1], row[0]))

    def asked(rows: Iterable[core.native.Fields]) -> Iterator[core.native.Fields]:
        """Yield rows of the wanted operations, with errors' names."""
        for row in rows:
            if selected(row["operation"], patterns):
                yield {**row, "error": error_name(row["error"])} if "error" in row else row

    refused = (Refused(**row) for row in asked(answer["refused"]))
    dropped = (Dropped(**row) for row in asked(answer["dropped"]))
    contradicted = (Contradicted(**row) for row in asked(answer["contradicted"]))
    aborters: Counter[Aborter] = Counter()
    for by in asked(answer["aborted"]):
        aborters[aborter(by["daemon"], by["comm"], by["pid"], by["call"])] += by["requests"]
    aborted = (Aborted(*by, requests) for by, requests in aborters.items())
    return Errors(
        tuple(rows),
        facts,
        tuple(Answered(name, calls) for name, calls in gone),
        refused=tuple(sorted(refused, key=lambda row: (-row.requests, row[:2]))),
        dropped=tuple(sorted(dropped, key=lambda row: (-row.requests, row.operation))),
        aborted=tuple(sorted(aborted, key=lambda row: (-row.requests, row.comm, row.pid))),
        interrupts=tuple(_interrupts(asked(answer["interrupts"]))),
        contradicted=tuple(sorted(contradicted, key=lambda row: (-row.calls, row[:3]))),
    )


def interrupts(source: Source, filters: Filters, of: Container[str]) -> tuple[Interrupts, ...]:
    """Return the requests of these operations whose callers got signals, most requests first."""
    answer, _ = RequestQuery(source)(core.native.errors, filters)
    return tuple(row for row in _interrupts(answer["interrupts"]) if row.operation in of)


def _interrupts(rows: Iterable[core.native.Fields]) -> list[Interrupts]:
    named = (Interrupts(**{**row, "signal": signal_name(row["signal"])}) for row in rows)
    return sorted(named, key=lambda row: (-row.requests, row[:3]))
