"""Activity on FUSE mounts in an interval."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.reasons import Code, Reason
from fusetools.results.units import Bytes, Ns, Seconds

# Callers that wait at once, on average, and the share of one row, from which on `top` names it.
WAITED = 0.5
MOST_OF = 0.5


@dataclass(frozen=True)
class Row:
    """A group of requests that ended in the interval.

    ``id``: a process's or thread's number. ``waited_seconds``: time in the interval that
    callers waited for them, or for requests in flight. ``queue_ns``, ``rtt_ns`` and ``exec_ns`` are
    means: from a request's begin to the callback, from there to its end (both None if no callback
    was seen), and from begin to end. The percentiles are from begin to end. ``bytes``: bytes read
    or written, by ``transfers`` of the requests.
    ``under_way``: number of requests in flight; None if it cannot be known for the row.
    """

    label: str
    id: int | None
    mount: str
    requests: int
    per_second: float
    waited_seconds: Seconds
    queue_ns: float | None
    rtt_ns: float | None
    exec_ns: float | None
    p50_ns: int
    p99_ns: int
    max_ns: int
    bytes: Bytes
    transfers: int
    under_way: int | None
    errors: int


@dataclass(frozen=True)
class UnderWay:
    """A request in flight. ``unsure``: its end may be among lost events."""

    operation: str
    age_ns: int
    mount: str
    path: str | None
    comm: str
    pid: int | None
    tid: int | None
    unique: int | None
    thread: int | None
    unsure: bool


@dataclass(frozen=True)
class Top:
    """An interval. ``start_ns`` and ``end_ns``: ns on CLOCK_MONOTONIC.

    ``groups``: number of groups, of which ``rows`` are shown; ``left_out``: number of requests in
    no group, as there were too many; ``before``: number of requests in flight that began before
    fusetools started, None until known; ``lost``: events that the kernel dropped in the interval.
    ``perf_cpu`` and ``own_cpu``: overhead of perf and of fusetools as shares of a CPU;
    ``pair_cost_ns``: time that the two probes of a callback add to it.
    """

    JSON_SHOWN = ("seconds", "verdict")

    by: str
    sort: str
    start_ns: Ns
    end_ns: Ns
    overall: Row
    rows: tuple[Row, ...]
    groups: int
    oldest: tuple[UnderWay, ...]
    under_way: int
    before: int | None
    lost: int
    left_out: int
    perf_cpu: float
    own_cpu: float
    pair_cost_ns: int | None
    missing: tuple[Reason, ...]

    @property
    def verdict(self) -> Reason | None:
        """The row for which callers waited most, and the part of it in the queue; None: nobody
        waited much, or no row stands out."""
        whole = self.overall.waited_seconds
        if not self.rows or whole < WAITED * self.seconds:
            return None
        most = max(self.rows, key=lambda row: row.waited_seconds)
        if most.waited_seconds < MOST_OF * whole:
            return None
        figures = {
            "time_share": min(most.waited_seconds / whole, 1.0),
            "callers": round(whole / self.seconds, 2),
        }
        if most.queue_ns is not None and most.rtt_ns is not None and most.exec_ns:
            figures["queue_share"] = min(most.queue_ns / most.exec_ns, 1.0)
        return Reason(Code.TOP_MOST, {"by": self.by, "label": most.label or "?"}, figures)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9
