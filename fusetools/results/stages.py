"""Where requests' time went."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusetools.missing import Missing
from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns, NsFloat

BY = ("comm", "pid", "daemon-thread", "mount", "size")


@dataclass(frozen=True)
class Stage:
    """A stage of an operation's requests: "queue", or "queue+dispatch" where they cannot be
    separated. In their order: vfs_entry (between: from a system call's second request on), setup,
    queue, dispatch, daemon, reply, caller_wakeup, vfs_exit.

    ``requests`` of the operation's timed requests went through it and took ``total_ns`` ns in all;
    ``mean_ns``, ``share``, ``p50_ns``, ``p99_ns`` and ``max_ns`` are of all timed requests: those
    of the stages add up to the whole, and a request that did not go through it counts as 0.
    ``parts_ns``: how the ns of ``total_ns`` were spent, if the recording shows it: of the queue
    "no_thread", "runnable" (the thread that took it had no CPU), "wakeup" and "copy", of the daemon
    "blocked", "runnable", "elsewhere" and "on_cpu", of the caller's waking "runnable" and "wakeup",
    of the others "blocked", "runnable" and "on_cpu"; and "unknown". ``unsplit_ns``: ns of its
    "blocked" that may be "runnable", as no wake-up was recorded. ``probes_ns``: ns of ``total_ns``
    that recording itself took, an estimate, or that were subtracted from it (Facts.corrected); None
    if there is none.
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
    """The requests of one operation; synchronous ones and asynchronous ones are separate.

    ``key``: what they are grouped by, "" without grouping, None if unknown. ``unmatched``: by
    reason, in the terms of fusetools.results.stories. ``timed``: those whose end is known: matched
    requests, and unanswered ones, which count until the recording's end or their caller's return.
    ``total_ns`` is the ns of all timed requests, the sum of the stages' totals; ``mean_ns``,
    ``p50_ns``, ``p99_ns`` and ``max_ns`` are None without any, and lower bounds from ``least_ns``
    ns on. ``errors`` of the timed ones failed. ``ring``: answered by io_uring. ``handed``: another,
    unknown thread of the daemon worked on them than the one that read them.
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
    probes_ns: NsFloat | None = None  # ns that recording took of all of them, as far as known
    timed: int = 0
    least_ns: Ns | None = None
    handed: int = 0


@dataclass(frozen=True, repr=False)
class Stages(Rows):
    """Synchronous requests first, most time first; then the asynchronous ones. ``by``: as in
    Recording.stages().

    ``event_cost_ns``: ns that recording one event takes, as measured during the recording, else the
    least that is seen in it. ``joined``: stages that no request of this recording separates.
    """

    operations: tuple[OperationStages, ...]
    by: str
    event_cost_ns: Ns | None
    joined: tuple[Missing, ...]
    facts: Facts

    ROWS = "operations"
    JSON_HIDDEN = ("facts",)
