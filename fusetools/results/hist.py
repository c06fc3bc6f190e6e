"""Latency histograms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns, NsFloat

# The daemon layer's function if it has no callbacks (native/core/src/analysis.rs).
READ_TO_REPLY = "read to reply"


PERCENTILES = ("50", "90", "95", "99", "99.9")


class Bucket(NamedTuple):
    """``calls`` durations from ``low_ns`` to ``high_ns``, both inclusive."""

    low_ns: Ns
    high_ns: Ns
    calls: int


@dataclass(frozen=True)
class Histogram:
    """Durations of one function in one layer, for one operation.

    ``buckets`` are log2, as (low, high, count), both ends inclusive, from the first to the last
    that is not empty. ``unmatched``: entries without a return and the reverse. ``min_ns``,
    ``max_ns``, ``mean_ns`` and ``percentiles_ns`` are None or empty if ``count`` is 0. For a kernel
    function: the calls that issued requests of that operation.

    ``unanswered`` of ``count`` had no end: requests without an answer, calls still open when the
    recording or their thread ended. They count until then, so figures from ``least_ns`` ns on are
    lower bounds. ``until_reply`` and ``after_reply`` are the two parts of a callback's durations,
    before and after its reply; both None if none replied.
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
    total_ns: Ns | None = None  # of all matched calls
    self_time_ns: Ns | None = None  # the part not in inner calls; only from function_graph
    unanswered: int = 0
    least_ns: Ns | None = None
    until_reply: Histogram | None = None
    after_reply: Histogram | None = None

    @property
    def answered(self) -> Histogram:
        """The durations that tables show: a callback's until its reply, others as they are."""
        if self.until_reply is None:
            return self
        return replace(self.until_reply, unmatched=self.unmatched)


@dataclass(frozen=True, repr=False)
class Histograms(Rows):
    """By operation, most calls first; within an operation, by layer from the caller inwards.

    ``unmatched``: entries without a return and the reverse, of all selected functions, each call
    once.
    """

    histograms: tuple[Histogram, ...]
    facts: Facts
    unmatched: int = 0

    ROWS = "histograms"
    JSON_HIDDEN = ("facts",)
