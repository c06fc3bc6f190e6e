"""Frozen results: what every command prints and the Python API returns.

Times are nanoseconds (int) unless a name says otherwise. Renderers read these objects and
nothing else, so text, JSON and CSV carry the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fusetools.missing import Missing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LAYERS = ("syscall", "kernel", "request", "daemon")  # from the caller inwards

# The daemon layer's function where it has no callbacks (native/core/src/analysis.rs).
READ_TO_REPLY = "read to reply"

PERCENTILES = ("50", "90", "95", "99", "99.9")


@dataclass(frozen=True)
class Histogram:
    """Durations of one function in one layer, for one operation.

    ``buckets`` are log2, as (low, high, count), both ends inclusive, only from the first
    to the last that is not empty. ``unmatched``: entries without a return and the reverse.
    ``min``, ``max``, ``mean`` and ``percentiles`` are None or empty where ``count`` is 0. Of a
    kernel function: the calls in which requests of that operation were made.

    ``unanswered`` of ``count`` had no end: requests that no daemon answered, calls that were open
    when the recording or their thread ended. They count until then, so figures from ``least`` ns on
    are lower bounds. Of a callback that replied, ``until_reply`` and ``after_reply`` are the two
    parts of its durations; both None where none did.
    """

    operation: str
    layer: str
    function: str
    count: int
    unmatched: int
    min: int | None
    max: int | None
    mean: float | None
    percentiles: dict[str, int]
    buckets: tuple[tuple[int, int, int], ...]
    unit: str = "ns"
    total: int | None = None  # of all matched calls
    self_time: int | None = None  # of that, not in calls inside them; function_graph alone tells it
    unanswered: int = 0
    least: int | None = None
    until_reply: Histogram | None = None
    after_reply: Histogram | None = None


@dataclass(frozen=True)
class Count:
    """Calls of one function: entries seen, whether or not their return was.

    ``latency`` holds the durations of those calls that were matched, where both ends were probed.
    """

    function: str
    operation: str
    layer: str
    count: int
    address: int | None = None
    latency: Histogram | None = None


@dataclass(frozen=True)
class Losses:
    """What a recording does not hold though it should."""

    lost: int = 0  # events the kernel says it dropped (LOST, LOST_SAMPLES, trace-cmd's counts)
    throttled: int = 0
    warnings: tuple[str, ...] = ()  # a salvaged file, probes that missed …


@dataclass(frozen=True)
class Requests:
    """FUSE requests of the recording: sent, ended, and those of which both were seen.

    ``unanswered`` of those begun got no answer of the daemon: not by the recording's end, or their
    callers were interrupted, or the kernel aborted them.
    """

    begun: int = 0
    ended: int = 0
    matched: int = 0
    unanswered: int = 0


@dataclass(frozen=True)
class Throttled:
    """A cgroup's CPU quota stopped its processes ``times`` times while recording, ``ns`` in all.

    ``whose``: "daemon" or "workload".
    """

    cgroup: str
    whose: str
    times: int
    ns: int


@dataclass(frozen=True)
class Facts:
    """What is true of a whole recording, or of the span that was asked for."""

    name: str  # of the file, without its folder
    seconds: float
    requests: Requests = Requests()
    losses: Losses = Losses()
    missing: tuple[Missing, ...] = ()
    probe_cost: int | None = None  # ns that a daemon call's duration holds of the probes' own
    # ns that an event takes, and a callback's two probes; None: not measured in the recording
    event_cost: int | None = None
    pair_cost: int | None = None
    throttled: tuple[Throttled, ...] = ()


@dataclass(frozen=True)
class Histograms:
    """By operation, most calls first; within one, by layer from the caller inwards.

    ``unmatched``: entries without a return and the reverse, of all functions that were asked for,
    each call once.
    """

    histograms: tuple[Histogram, ...]
    facts: Facts
    unmatched: int = 0


@dataclass(frozen=True)
class Counts:
    """Most calls first; functions that were probed but never called come last.

    ``unmatched`` as in Histograms.
    """

    counts: tuple[Count, ...]
    facts: Facts
    unmatched: int = 0


@dataclass(frozen=True)
class Stage:
    """A stage of an operation's requests: "queue", or "queue+dispatch" where they cannot be told
    apart (fusetools.stages.STAGES).

    ``requests`` of the operation's timed ones went through it, and took ``total`` ns in all;
    ``mean``, ``share``, ``p50``, ``p99`` and ``max`` are of all timed ones: those of the stages add
    up to the whole, and a request that did not go through it counts with 0. ``parts``: ns of
    ``total`` that went where, where the recording tells: of the queue "no_thread", "runnable" (the
    thread that took it had no CPU), "wakeup" and "copy", of the daemon "blocked", "runnable",
    "elsewhere" and "on_cpu", of the caller's waking "runnable" and "wakeup", of the others
    "blocked", "runnable" and "on_cpu"; and "untold". ``unsplit``: ns of its "blocked" that may be
    "runnable", since no wake-up was recorded. ``probes``: ns of ``total`` that recording
    itself took, an estimate; None where there is none.
    """

    name: str
    requests: int
    total: int
    mean: float
    share: float
    p50: int
    p99: int
    max: int
    parts: dict[str, int] = field(default_factory=dict)
    probes: float | None = None
    unsplit: int = 0


@dataclass(frozen=True)
class OperationStages:
    """The requests of one operation; those that a caller waits for apart from those that none does.

    ``key``: what they were told apart by, "" where nothing was asked for, None where it is not
    known. ``unmatched``: by reason, in the words of fusetools.stories.Stories. ``timed`` are those
    of which it is known when they were over: the matched ones, and those that were not answered,
    which count until the recording's end or their caller's return. ``total`` is the ns of all
    timed requests, the sum of the stages' totals; ``mean``, ``p50``, ``p99`` and ``max`` are None
    without any, and lower bounds from ``least`` ns on. ``errors`` of the timed ones failed.
    ``ring``: answered by io_uring.
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
    total: int
    mean: float | None
    p50: int | None
    p99: int | None
    max: int | None
    probes: float | None = None  # ns that recording took of all of them, as far as that is known
    timed: int = 0
    least: int | None = None


@dataclass(frozen=True)
class Stages:
    """Most time first, of what callers wait for; then the rest. ``by``: as in Recording.stages().

    ``event_cost``: ns that recording one event takes, as measured while it was made, else the least
    that is seen in it. ``joined``: stages that
    no request of this recording tells apart.
    """

    operations: tuple[OperationStages, ...]
    by: str
    event_cost: int | None
    joined: tuple[Missing, ...]
    facts: Facts


@dataclass(frozen=True)
class Side:
    """One function in one of two recordings; None: not recorded there."""

    count: float | None  # calls, or calls per request or second
    percentiles: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """One function in two recordings."""

    function: str
    operation: str
    layer: str
    a: Side
    b: Side

    @property
    def change(self) -> float | None:
        """B's calls less A's."""
        if self.a.count is None or self.b.count is None:
            return None
        return self.b.count - self.a.count

    @property
    def percent(self) -> float | None:
        """That change in per cent of A; None where A has no calls."""
        return (
            100 * self.change / self.a.count if self.change is not None and self.a.count else None
        )

    def slower(self, percentile: str) -> int | None:
        """B's percentile less A's, ns."""
        a, b = self.a.percentiles.get(percentile), self.b.percentiles.get(percentile)
        return None if a is None or b is None else b - a

    def slower_percent(self, percentile: str) -> float | None:
        """That in per cent of A."""
        change = self.slower(percentile)
        a = self.a.percentiles.get(percentile)
        return 100 * change / a if change is not None and a else None


@dataclass(frozen=True)
class Differences:
    """``differences`` are sorted by layer, then largest change first."""

    differences: tuple[Difference, ...]
    a: Facts
    b: Facts
    per: str = ""  # "", "request" or "second": what the calls are divided by


@dataclass(frozen=True)
class GraphNode:
    """All calls of a kernel function that were made in the same way: by the same functions.

    ``total`` is the ns that they took, ``self_time`` what of it was not spent in the functions that
    they called (of those recorded). ``children``: most time first.
    """

    function: str
    calls: int
    total: int
    self_time: int
    children: tuple[GraphNode, ...] = ()


@dataclass(frozen=True)
class Graph:
    """What the kernel's functions called, added up.

    ``unmatched``: calls whose return was not seen.
    """

    roots: tuple[GraphNode, ...]
    unmatched: int
    facts: Facts


@dataclass(frozen=True)
class GraphCall:
    """One call of a kernel function: ``start`` in ns on the recording's clock.

    ``duration`` is None where its return was not seen; ``children`` are by start.
    """

    function: str
    start: int
    duration: int | None
    tid: int
    comm: str
    cpu: int
    children: list[GraphCall] = field(default_factory=list)


@dataclass(frozen=True)
class GraphCalls:
    """Single calls by start, to be taken once; ``first``: the recording's first event, ns."""

    calls: Iterator[GraphCall]
    first: int
    unmatched: int
    facts: Facts


@dataclass(frozen=True)
class OperationErrors:
    """What the requests of one operation were answered with.

    ``requests`` were answered, ``errors`` of them with an error: (name, requests), most first.
    ``negative``: lookups answered without an error and without an inode, which lets the kernel
    remember that there is no such file; None where the recording does not tell. ``unanswered``:
    (fate, requests) of those that were not, beside ``requests``.
    """

    operation: str
    requests: int
    errors: tuple[tuple[str, int], ...] = ()
    negative: int | None = None
    unanswered: tuple[tuple[str, int], ...] = ()

    @property
    def failed(self) -> int:
        return sum(n for _, n in self.errors)

    @property
    def absent(self) -> int:
        """Lookups of what is not there, as far as the recording tells."""
        return dict(self.errors).get("ENOENT", 0) + (self.negative or 0)


@dataclass(frozen=True)
class Errors:
    """By operation, most errors first; those without any come last.

    ``disconnected``: (system call, calls) that failed with ENOTCONN: their mount had no daemon any
    more, and no request was made.
    """

    operations: tuple[OperationErrors, ...]
    facts: Facts
    disconnected: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Helper:
    """Another thread whose work a thread waited for, and that woke it up.

    ``waited``: ns that the wait took; ``syscalls``: what this thread called meanwhile, as of
    ``Meanwhile``; ``peers``: whom it connected to meanwhile ("192.0.2.1:3128"), None where it used
    sockets and the recording does not tell of whom.
    """

    tid: int
    waited: int
    syscalls: tuple[tuple[str, int, int], ...]
    peers: tuple[str, ...] | None


@dataclass(frozen=True)
class Meanwhile:
    """What the daemon's thread did between the callback's entry and its reply.

    ``helpers``: the thread that ended its longest wait, the one that ended that one's, and so on.
    ns on a CPU, ready to run, asleep, and after it had left the request to another thread; all None
    where its switches were not recorded. ``unsplit``: of ``blocked``, what may be ``runnable``,
    since no wake-up was recorded. ``syscalls``: (name, calls, ns), longest first.
    """

    on_cpu: int | None
    runnable: int | None
    blocked: int | None
    elsewhere: int | None
    unsplit: int = 0
    syscalls: tuple[tuple[str, int, int], ...] = ()
    helpers: tuple[Helper, ...] = ()


@dataclass(frozen=True)
class Request:
    """One FUSE request; None, or "", where the recording does not tell.

    ``start``: when it was queued, ns since the recording's first event; ``duration``: what its
    caller waited for it, the sum of ``stages``; of an asynchronous one from its begin to its end.
    Of one without an answer: until it was over (``until``, ns since the recording's first event),
    by the recording's end or its caller's return. ``path`` begins at the mount point if
    ``whole``. ``inode`` is the file's, also where a lookup led to it. ``name``: what the callback
    was given, of a file or an attribute; ``size``: what it was asked for, and ``offset`` from
    where; ``answered``: bytes of the answer without its header. ``marks``: name (fusetools.stories)
    to ns since the recording's first event. ``stages``: (name, ns) as in ``Stages``; ``parts``: ns
    of each, in the same order, as in ``Stage``, empty where not known. ``handed``: answered by
    another thread than the one that had read it.
    """

    operation: str
    unique: int | None
    mount: str
    fate: str
    start: int
    duration: int
    error: str
    waits: bool
    comm: str
    pid: int | None
    tid: int | None
    syscall: str
    daemon_comm: str
    daemon_pid: int | None
    daemon_tid: int | None
    path: str | None
    whole: bool
    name: str | None
    inode: int | None
    size: int | None
    offset: int | None
    answered: int | None
    negative: bool
    marks: dict[str, int]
    stages: tuple[tuple[str, int], ...]
    parts: tuple[dict[str, int], ...] = ()
    until: int | None = None
    handed: bool = False
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True)
class Slowest:
    """``guessed``: names were told by what callers asked for next, not by the answers."""

    requests: tuple[Request, ...]
    guessed: bool
    facts: Facts


@dataclass(frozen=True)
class Moment:
    """``time`` in ns since the request's first mark; what either side did then, or ""."""

    time: int
    caller: str
    daemon: str


@dataclass(frozen=True)
class Shown:
    """One request's story; ``guessed`` as in Slowest."""

    request: Request
    moments: tuple[Moment, ...]
    guessed: bool
    facts: Facts


@dataclass(frozen=True)
class QueuePart:
    """A part of the time: requests in the queue, the daemon's threads at work."""

    mean_queued: float
    mean_busy: float
    most_queued: int
    most_busy: int


@dataclass(frozen=True)
class MountQueue:
    """The queue of one mount's daemon, from the first request to the last.

    ``threads``: those that served any. ns: ``total`` that its requests took, ``waited`` of it in
    the queue, ``short`` of that while all threads were at work; one that had replied and would have
    been done had it not lacked a CPU does not count; ``runnable`` of it while the thread that had
    the request was ready to run and had no CPU. ``unanswered`` requests count until they were over.
    Of ``unread`` ones it is not known when they were read: they are in none of these times.
    ``handed`` ones were answered by another thread than the one that read them: how many threads
    are at work is not known then. ``parts`` are of equal length.
    """

    mount: str
    requests: int
    threads: int
    start: int  # ns since the recording's first event
    end: int
    total: int
    waited: int
    short: int
    whole: QueuePart
    parts: tuple[QueuePart, ...]
    levels: Iterable[
        tuple[int, int, int]
    ]  # since when (ns), requests in the queue, threads at work

    unanswered: int = 0
    unread: int = 0
    handed: int = 0
    runnable: int = 0

    @property
    def share_short(self) -> float:
        """Of the requests' time: in the queue while all threads were at work."""
        return self.short / self.total if self.total else 0.0

    @property
    def share_runnable(self) -> float:
        """Of the requests' time: their threads were ready to run and had no CPU."""
        return self.runnable / self.total if self.total else 0.0


@dataclass(frozen=True)
class Queue:
    """By mount, most requests first."""

    mounts: tuple[MountQueue, ...]
    facts: Facts


@dataclass(frozen=True)
class Exported:
    path: str
    requests: int
    facts: Facts


@dataclass(frozen=True)
class Session:
    """The recording's own facts, from its ``fusetools:session`` sample.

    ``facts`` is that sample's JSON object as it is; empty for a recording made by other means.
    """

    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Calls:
    """Matched calls as columns of equal length, by start; system calls that made a request.

    ``layer`` indexes LAYERS, ``function`` indexes ``functions``; ``start`` and ``duration`` are ns
    on the recording's clock; ``unique`` is the FUSE request's number, 0 where unknown.
    """

    functions: tuple[str, ...]
    layer: NDArray[np.uint8]
    function: NDArray[np.uint16]
    start: NDArray[np.uint64]
    duration: NDArray[np.uint64]
    pid: NDArray[np.int32]
    tid: NDArray[np.int32]
    unique: NDArray[np.uint64]

    def of(self, function: str) -> NDArray[np.bool_]:
        """True for the calls of ``function``, e.g. ``calls.duration[calls.of("cvmfs_lookup")]``."""
        codes = [i for i, name in enumerate(self.functions) if name == function]
        import numpy as np

        return np.isin(self.function, codes)


@dataclass(frozen=True)
class RequestColumns:
    """FUSE requests as columns of equal length, by begin.

    Times are ns on the recording's clock, 0 where they were not seen; ``callback_start`` and
    ``callback_end`` are the daemon's callback, ``sent`` when the daemon had copied the request,
    ``woken`` when the caller ran on; ``pid`` and ``tid`` are the caller's; ``error``: 0
    or -errno.
    """

    connection: NDArray[np.uint64]
    unique: NDArray[np.uint64]
    opcode: NDArray[np.uint32]
    begin: NDArray[np.uint64]
    end: NDArray[np.uint64]
    error: NDArray[np.int32]
    pid: NDArray[np.int32]
    tid: NDArray[np.int32]
    callback_start: NDArray[np.uint64]
    callback_end: NDArray[np.uint64]
    sent: NDArray[np.uint64]
    woken: NDArray[np.uint64]


@dataclass(frozen=True)
class LeftOut:
    """What a picture does not show: how often, and the ns of it.

    ``idle``: a daemon's threads without a request; ``own``: the workload outside of any request;
    ``others``: what filters left out, and other processes.
    """

    idle: tuple[int, int] = (0, 0)
    own: tuple[int, int] = (0, 0)
    others: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Named:
    """What named addresses in stacks.

    ``source``: "recording", the path of what was given instead, or "" where there was nothing;
    ``addresses``: how many different ones there were, ``nameless``: how many of them have no name.
    """

    source: str
    addresses: int
    nameless: int


@dataclass(frozen=True)
class Stacks:
    """Stacks and their weights, for flame graphs.

    ``graph``: which one, of fusetools.flames.GRAPHS; ``asked``: what of it, "" for all.
    ``stacks``: "comm;outermost;…;innermost" to its weight, in ``unit``: "us", or of samples the
    unit of their period ("ns" of a clock). ``kinds``: of frames, by name. ``count``: of samples,
    waits, requests or calls shown, ``total``: their weight in ns (of samples in ``unit``),
    ``stackless``: those without a recorded stack; ``cut``: of ``total`` what is of stacks that end
    before their thread's start (None where not known). ``unfinished``: those that are not shown,
    since their end was not seen. ``states``: ns of waits by their state. ``daemons``: of ``total``
    ns that threads of daemons waited; ``shared``: ns of requests that are not in ``total``, since
    their caller waited for another one at the same time. ``kernel`` and ``user``: what named their
    functions. ``notes``: what else is to be said, a line each.
    """

    graph: str
    asked: str
    stacks: dict[str, float]
    unit: str
    kinds: dict[str, str]
    count: int
    total: int
    stackless: int
    cut: int | None
    left_out: LeftOut
    unfinished: int
    states: dict[str, int]
    daemons: int
    shared: int
    kernel: Named
    user: Named
    notes: tuple[str, ...]
    facts: Facts
