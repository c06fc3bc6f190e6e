"""Number of calls of each function."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.errors import Interrupts
from fusetools.results.facts import Facts
from fusetools.results.hist import PERCENTILES, Histogram
from fusetools.results.rows import Rows

# Columns of the CSV. Each line repeats the recording's duration and number of requests, so that a
# part of the file, or lines of several files, keep their meaning.
LATENCY = ("min_ns", "mean_ns", *(f"p{p}_ns" for p in PERCENTILES), "max_ns")
COLUMNS = (
    "function",
    "operation",
    "layer",
    "count",
    "address",
    "matched",
    "unmatched",
    *LATENCY,
    "seconds",
    "requests",
    "lost",
)


@dataclass(frozen=True)
class Count:
    """Calls of one function. ``count``: entries seen, with or without their return.

    ``latency``: durations of matched calls, if both ends were probed; of callbacks until their
    reply.
    """

    function: str
    operation: str
    layer: str
    count: int
    address: int | None = None
    latency: Histogram | None = None

    JSON_HIDDEN = ("latency",)


@dataclass(frozen=True, repr=False)
class Counts(Rows):
    """Counts, most calls first; probed functions without calls come last.

    ``unmatched``: as in Histograms; ``interrupts``: requests whose callers got signals.
    """

    counts: tuple[Count, ...]
    facts: Facts
    unmatched: int = 0
    interrupts: tuple[Interrupts, ...] = ()

    ROWS = "counts"
    JSON_HIDDEN = ("facts",)
