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

    The order of stages is vfs_entry ("between" from a system call's second request on), setup,
    queue, dispatch, daemon, reply ("refused" once the kernel refused the answer), caller_wakeup,
    vfs_exit.

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
    as in fusetools.results.stories. ``timed``: number of requests with a known end: matched ones,
    and unanswered ones, which count until the recording's end or their caller's return.
    ``total_ns``: time of all timed requests, the sum of the stages' totals. ``mean_ns``,
    ``p50_ns``, ``p99_ns`` and ``max_ns`` are None without timed requests. Values from ``least_ns``
    are lower bounds. ``errors``: number of timed requests that failed. ``ring``: number answered by
    io_uring. ``handed``: number handled by another, unknown thread than the reader.
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


@dataclass(frozen=True, repr=False)
class Stages(Rows):
    """Requests by operation: first synchronous, then asynchronous ones, each by decreasing time.

    ``by``: as in Recording.stages(). ``event_cost_ns``: cost of recording an event, measured while
    recording; else an upper bound, the shortest time from a request's end to its caller's waking.
    ``joined``: stages that this recording cannot separate.
    """

    operations: tuple[OperationStages, ...]
    by: str
    event_cost_ns: Ns | None
    joined: tuple[Reason, ...]
    facts: Facts

    ROWS = "operations"
    JSON_HIDDEN = ("facts",)
