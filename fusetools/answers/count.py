"""Number of calls of each function."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fusetools.answers.errors import interrupts
from fusetools.answers.filters import Filters
from fusetools.answers.series import series, unmatched
from fusetools.answers.source import Source
from fusetools.core import LATER, OPERATIONS, matching
from fusetools.names import LAYERS, SIGNAL
from fusetools.patterns import unknown
from fusetools.results.count import Count, Counts
from fusetools.results.hist import READ_TO_REPLY


def count(source: Source, regex: str, layers: Sequence[str], filters: Filters) -> Counts:
    """Count calls of each function whose name or operation matches the regular expression.

    Error: no name or operation matches."""
    rows, facts, events = series(source, source.catalogue, (), layers, filters)
    pairs = {(p.layer, p.function) for p in source.probes if p.role in ("return", "reply")}
    counts = []
    functions = matching(regex, [s.histogram.function for s in rows])
    operations = matching(regex, [s.histogram.operation for s in rows])
    known = {n for s in rows for n in (s.histogram.function, s.histogram.operation) if n}
    rows = [s for s, f, o in zip(rows, functions, operations) if f or o]
    # 0 calls of a known operation are a valid answer.
    if not rows and not any(matching(regex, [*sorted(OPERATIONS), *LATER])):
        raise unknown(
            f"no function or operation of {source.path} matches {regex}",
            regex,
            known,
            f"fusetools count -i {shlex.quote(str(source.path))}",
        )
    for s in rows:
        h = s.histogram
        function, layer = h.function, h.layer
        timed = layer in ("request", "syscall") or (layer, function) in pairs
        timed = timed or h.self_time_ns is not None or function == READ_TO_REPLY
        counts.append(
            Count(
                function,
                h.operation,
                layer,
                s.entries,
                s.address or source.addresses.get(function),
                h.answered if timed else None,
            )
        )
    counts.sort(key=lambda c: (-c.count, LAYERS.index(c.layer), c.function, c.operation))
    called = {c.operation for c in counts if c.count}
    signals = interrupts(source, filters, called) if events.get(SIGNAL) else ()
    return Counts(tuple(counts), facts, unmatched(rows), signals)
