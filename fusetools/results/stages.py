"""Requests' time by stage."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusetools.reasons import Reason
from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns, NsFloat

BY = ("comm", "pid", "daemon-thread", "mount", "size")


@dataclass(frozen=True)
class Stage:
    """A stage of an operation's requests, e.g. "queue", or "queue+dispatch" if not separable.

    fusetools-stages(1) lists the stages in their order. Time in which the caller waits for
    something else than the request is in no stage: see MountCalls.

    ``requests``: number of timed requests with this stage; ``total_ns``: their time in it.
    ``mean_ns``, ``share``, ``p50_ns``, ``p99_ns`` and ``max_ns`` are over all timed requests. A
    request without this stage counts as 0, so that the stages' means add up to the whole.
    ``parts_ns``: parts of ``total_ns``, as far as recorded, and "unknown":

    - queue: "no_thread", "runnable" (the thread that took it had no CPU), "wakeup", "copy";
    - daemon: "blocked", "runnable", "elsewhere", "on_cpu";
    - caller_wakeup: "runnable", "wakeup";
    - others: "blocked", "runnable", "on_cpu".

    ``unsplit_ns``: the part of "blocked" that may be "runnable", as no wake-up was recorded.
    ``probes_ns``: estimated overhead of recording in ``total_ns``, or already subtracted from it
    (Facts.corrected); None if unknown.
    """

    name: str
    requests: int
    total_ns: Ns
    mean_ns: NsFloat
    share: float
    p50_ns: Ns
    p99_ns: Ns
    max_ns: Ns
    parts_ns: dict[str, Ns] = field(default_factory=dict)
    probes_ns: NsFloat | None = None
    unsplit_ns: Ns = 0


@dataclass(frozen=True)
class OperationStages:
    """The requests of one operation: either its synchronous or its asynchronous ones (``waits``).

    ``key``: the group's key, "" without grouping, None if unknown. ``unmatched``: number by fate,
    as in fusetools.results.table. ``timed``: number of requests with a known end: matched ones,
    and unanswered ones, which count until the recording's end or their caller's return.
    ``total_ns``: time of all timed requests, the sum of the stages' totals. ``mean_ns``,
    ``p50_ns``, ``p99_ns`` and ``max_ns`` are None without timed requests. Values from ``least_ns``
    are lower bounds. ``errors``: number of timed requests that failed. ``ring``: number answered by
    io_uring. ``handed``: number handled by another, unknown thread than the reader.
    ``start_function``: if requests are grouped by the daemon's threads, the function with which the
    thread began, "" if no recorded stack reaches it. ``disk_ns``: the part of the daemon's blocked
    time that it waited for disks, at least, by file with its mount and device ("" if unknown); only
    of synchronous requests, and only if operations are selected.
    """

    operation: str
    waits: bool
    key: str | int | None
    requests: int
    matched: int
    unmatched: dict[str, int]
    errors: int
    ring: int
    stages: tuple[Stage, ...]
    total_ns: Ns
    mean_ns: NsFloat | None
    p50_ns: Ns | None
    p99_ns: Ns | None
    max_ns: Ns | None
    probes_ns: NsFloat | None = None  # overhead of recording in all stages, as far as known
    timed: int = 0
    least_ns: Ns | None = None
    handed: int = 0
    start_function: str = ""
    disk_ns: dict[str, Ns] = field(default_factory=dict)


@dataclass(frozen=True)
class CallsWithoutRequest:
    """System calls that the kernel answered without a request: from its caches, or with an error of
    its own. Only a descriptor tells that such a call is on a mount: calls with a path are not here,
    and neither are those that had not returned by the recording's end."""

    calls: int
    total_ns: Ns
    mean_ns: NsFloat
    p50_ns: Ns
    p99_ns: Ns
    max_ns: Ns


@dataclass(frozen=True)
class MountCalls:
    """The system calls of one name on the recorded mounts, and their time outside of requests.

    A call is on a mount if its descriptor is, or if it makes a request that it may wait for.
    "page_fault" is no system call: each of its calls is a thread's wait, outside of system calls,
    for a page that an answer to an earlier request brought.

    ``key``: the group's key as in OperationStages. ``operation``: the FUSE operation that is
    closest to the call ("write" for pwrite64), None if there is none; ``operations``: those of
    the calls' requests. ``calls``: number of calls; ``unreturned``: number of calls that had not
    returned by the recording's end: they count until then. Durations from ``least_ns`` on are lower
    bounds. ``requests``: number of requests that the calls waited for. ``cached``: those of the
    calls that made no request, None if there are none.

    ``total_ns``: the calls' whole time, which is ``in_requests_ns`` and the sum of ``outside_ns``.
    ``in_requests_ns``: time in the stages of the requests that they waited for. Where a caller has
    several requests at once, each moment counts once here. ``outside_ns``: the rest by what the
    caller did, without zeros:

    - "dirty_throttling": waited as too much of the page cache was dirty (balance_dirty_pages);
    - "page": waited for a page: its lock, or its read or write;
    - "inode_lock": waited for the lock of an inode, or for a lookup of the same name;
    - "directory_lock": waited until no other lookup or list was under way in the directory, on a
      mount that does not allow parallel ones (FUSE_PARALLEL_DIROPS);
    - "permission": waited for a program that permits accesses (fanotify's permission events);
    - "passthrough": waited for the file below, which the kernel itself reads or writes for the
      daemon (FOPEN_PASSTHROUGH);
    - "other": waited for something else;
    - "blocked": waited, for an unknown reason: no stack shows it;
    - "runnable": waited for a CPU;
    - "on_cpu": ran, such as copying from and to the page cache;
    - "unknown": its switches are not recorded.
    """

    syscall: str
    operation: str | None
    operations: tuple[str, ...]
    key: str | int | None
    calls: int
    unreturned: int
    requests: int
    total_ns: Ns
    in_requests_ns: Ns
    outside_ns: dict[str, Ns]
    mean_ns: NsFloat
    p50_ns: Ns
    p99_ns: Ns
    max_ns: Ns
    least_ns: Ns | None = None
    cached: CallsWithoutRequest | None = None

    @property
    def rest_ns(self) -> int:
        """The time outside of requests."""
        return sum(self.outside_ns.values())


@dataclass(frozen=True, repr=False)
class Stages(Rows):
    """Requests by operation: first synchronous, then asynchronous ones, each by decreasing time.

    ``by``: as in Recording.stages(). ``event_cost_ns``: cost of recording an event, measured while
    recording; else an upper bound, the shortest time from a request's end to its caller's waking.
    ``joined``: stages that this recording cannot separate. ``calls``: system calls on the mounts,
    by decreasing time outside of requests; empty if none are recorded.
    """

    operations: tuple[OperationStages, ...]
    by: str
    event_cost_ns: Ns | None
    joined: tuple[Reason, ...]
    facts: Facts
    calls: tuple[MountCalls, ...] = ()

    ROWS = "operations"
    JSON_HIDDEN = ("facts",)
