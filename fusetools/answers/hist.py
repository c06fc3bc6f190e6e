"""Latency histograms."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fusetools.answers.filters import Filters
from fusetools.answers.series import series, unmatched
from fusetools.answers.source import Source
from fusetools.names import LAYERS
from fusetools.results.hist import Histograms


def hist(
    source: Source,
    patterns: Sequence[str],
    layers: Sequence[str],
    filters: Filters,
    corrected: bool = False,
) -> Histograms:
    """Return latency histograms; the arguments as in Recording.hist()."""
    timed = source.catalogue.timed()
    rows, facts, _ = series(source, timed, patterns, layers, filters, True, corrected)
    lost = unmatched(rows)
    # If kernel functions call one another, show the outermost, unless a pattern selects others.
    histograms = [
        s.histogram
        for s in rows
        if s.histogram.layer != "kernel"
        or s.outermost
        or any(fnmatchcase(s.histogram.function, pattern) for pattern in patterns)
    ]
    calls: dict[str, int] = {}
    for h in histograms:
        # Ignore kernel functions: the kernel often handles a call without a request.
        known = h.count if h.layer != "kernel" else 0
        calls[h.operation] = max(calls.get(h.operation, 0), known)
    histograms.sort(
        key=lambda h: (
            not h.operation,
            -calls[h.operation],
            h.operation,
            LAYERS.index(h.layer),
            -h.count,
            -(h.total_ns or 0),
            h.function,
        )
    )
    return Histograms(tuple(histograms), facts, lost)
