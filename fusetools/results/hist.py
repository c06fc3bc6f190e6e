"""Latency histograms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns, NsFloat

# Name of the daemon layer's function if there are no callbacks
# (native/core/src/answers/analysis.rs).
READ_TO_REPLY = "read to reply"


PERCENTILES = ("50", "90", "95", "99", "99.9")


class Bucket(NamedTuple):
    """Number of ``calls`` with a duration from ``low_ns`` to ``high_ns``, both inclusive."""

    low_ns: Ns
    high_ns: Ns
    calls: int


@dataclass(frozen=True)
class Histogram:
    """Durations of one function in one layer, for one operation.

    For a kernel function, only calls that issued requests of this operation count. ``buckets`` are
    log2, from the first to the last that is not empty. ``unmatched``: number of entries without a
    return, and the reverse. ``min_ns``, ``max_ns``, ``mean_ns`` and ``percentiles_ns`` are None or
    empty if ``count`` is 0.

    ``unanswered``: number of calls in ``count`` without an end: requests without a reply, and calls
    still open when the recording or their thread ended. They count until then, so that values from
    ``least_ns`` are lower bounds. ``until_reply`` and ``after_reply``: the two parts of a
    callback's durations; both None if no callback replied.
    """

    operation: str
    layer: str
    function: str
    count: int
    unmatched: int
    min_ns: Ns | None
    max_ns: Ns | None
    mean_ns: NsFloat | None
    percentiles_ns: dict[str, Ns]
    buckets: tuple[Bucket, ...]
    total_ns: Ns | None = None  # sum of all matched calls
    self_time_ns: Ns | None = None  # the part outside inner calls; from function_graph only
    unanswered: int = 0
    least_ns: Ns | None = None
    until_reply: Histogram | None = None
    after_reply: Histogram | None = None

    @property
    def answered(self) -> Histogram:
        """The histogram that tables show: a callback's until its reply, others unchanged."""
        if self.until_reply is None:
            return self
        return replace(self.until_reply, unmatched=self.unmatched)


@dataclass(frozen=True, repr=False)
class Histograms(Rows):
    """Histograms by operation, most calls first; within one, by layer from caller to daemon.

    ``unmatched``: number of entries without a return, and the reverse, of all selected functions;
    each call counts once.
    """

    histograms: tuple[Histogram, ...]
    facts: Facts
    unmatched: int = 0

    ROWS = "histograms"
    JSON_HIDDEN = ("facts",)
