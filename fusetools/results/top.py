"""What happened on FUSE mounts in an interval."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.missing import Missing
from fusetools.results.units import Bytes, Ns, Seconds

# What rows are grouped by, in the order of the key that changes it; "cgroup" is a job's.
BY = ("operation", "process", "user", "cgroup", "mount", "file", "directory", "thread")
SORTS = ("requests", "waited", "p50", "p99", "max", "bytes", "errors", "under_way")


@dataclass(frozen=True)
class Row:
    """A group of requests that ended in the interval.

    ``id``: a process's or thread's number. ``waited_seconds``: seconds that callers waited for
    them. Means in ns: ``queue_ns`` until the daemon's callback began, ``rtt_ns`` from there to the
    end, both None if no callback was seen; ``exec_ns`` from begin to end, as are the percentiles.
    ``bytes`` were read or written, by ``transfers`` of the requests. ``under_way``: requests that
    had not ended; None if it cannot be known for the row.
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
    """A request that has not ended. ``unsure``: events were lost, its end may be among them."""

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

    ``groups``: number of rows without a limit; ``left_out``: requests in no row, as there were too
    many; ``before``: requests that began before this was started and are in flight still, None
    until that is known; ``lost``: events that the kernel dropped in the interval. ``perf_cpu`` and
    ``own_cpu``: shares of a CPU that observing took; ``pair_cost_ns``: what the two probes of a
    callback add to it.
    """

    JSON_SHOWN = ("seconds",)

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
    missing: tuple[Missing, ...]

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9
