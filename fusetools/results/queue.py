"""Number of requests in the daemon's queue over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusetools.reasons import Code, Reason
from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns

# Share of the requests' time spent in the queue while all threads were at work. Up to 0.14 was
# measured with one thread and one caller: a thread's work after its reply, including the probes.
SHORT = 0.25
AT_TIMES = 0.05
# Share of their time in which the requests' threads were ready to run and had no CPU, as the rule
# cpu_taken of why has it (configs/rules).
SHORT_OF_CPU = 0.15


@dataclass(frozen=True)
class QueuePart:
    """Requests in the queue and busy daemon threads in an interval: time-weighted means, maxima."""

    mean_queued: float
    mean_busy: float
    most_queued: int
    most_busy: int


@dataclass(frozen=True)
class MountQueue:
    """The queue of one mount's daemon, from the first request to the last.

    ``threads``: number of threads that served requests. ``total_ns``: time of all requests.
    ``waited_ns``: the part in the queue. ``short_ns``: the part of ``waited_ns`` while all threads
    were busy, or, if most requests go by io_uring, while the thread of their ring was busy. A
    thread that had replied and only lacked a CPU to finish is not busy. ``runnable_ns``: the part
    of ``total_ns`` while the request's thread was runnable. ``unanswered``: number of requests
    without a reply; they count until they were over. ``unread``: number of requests with an unknown
    time of reading; the times exclude them. ``handed``: number of requests answered by another
    thread than the reader; the number of busy threads is unknown then. ``ring``: number of requests
    by io_uring. ``dropped``: number of requests that a thread read and never answered, while it
    went on to others; ``refused``: number of those whose answer the kernel refused; no thread is at
    work on either from then on. ``more_threads``: how to give this daemon more threads, "" if that
    is not known. ``parts``: intervals of equal length.
    """

    mount: str
    requests: int
    threads: int
    start_ns: Ns  # ns since the recording's first event
    end_ns: Ns
    total_ns: Ns
    waited_ns: Ns
    short_ns: Ns
    whole: QueuePart
    parts: tuple[QueuePart, ...]
    levels: Iterable[tuple[int, int, int]]  # begin (ns), requests in the queue, busy threads

    unanswered: int = 0
    unread: int = 0
    handed: int = 0
    ring: int = 0
    runnable_ns: Ns = 0
    dropped: int = 0
    refused: int = 0
    more_threads: str = ""

    JSON_HIDDEN = ("levels",)
    JSON_SHOWN = ("share_short", "share_runnable", "verdict")

    @property
    def by_ring(self) -> bool:
        """True if most requests went by io_uring, where each CPU has its own ring and thread."""
        return 2 * self.ring > self.requests

    @property
    def share_short(self) -> float:
        """Share of the requests' time in the queue while all threads were busy."""
        return self.short_ns / self.total_ns if self.total_ns else 0.0

    @property
    def share_runnable(self) -> float:
        """Share of the requests' time while their threads were runnable."""
        return self.runnable_ns / self.total_ns if self.total_ns else 0.0

    @property
    def verdict(self) -> tuple[Reason, ...]:
        """Reasons why the daemon is short of CPU, or of threads."""
        found = []
        if self.unread:
            found.append(Reason(Code.READS_NOT_SEEN, {}, {"requests": self.unread}))
        if self.dropped:
            found.append(Reason(Code.REQUESTS_DROPPED, {}, {"requests": self.dropped}))
        if self.refused:
            found.append(Reason(Code.ANSWERS_REFUSED, {}, {"requests": self.refused}))
        if self.share_runnable >= AT_TIMES:
            figures = {"runnable_share": self.share_runnable}
            is_short = self.share_runnable >= SHORT_OF_CPU
            code = Code.CPU_SHORT if is_short else Code.CPU_SHORT_AT_TIMES
            found.append(Reason(code, {}, figures))
        return (*found, self._threads())

    def _threads(self) -> Reason:
        figures: dict[str, int | float] = {"requests": self.requests, "threads": self.threads}
        if self.total_ns:
            figures["queue_share"] = self.waited_ns / self.total_ns
        if self.handed or not self.threads or not self.total_ns:
            if self.unanswered == self.requests:
                return Reason(Code.THREADS_UNKNOWN_NO_ANSWER, {}, figures)
            if not self.handed:
                return Reason(Code.THREADS_UNKNOWN_NO_READ, {}, figures)
            return Reason(Code.THREADS_UNKNOWN_HANDED, {}, {**figures, "handed": self.handed})
        figures["short_share"] = self.share_short
        served = {"served_by": "io_uring" if self.by_ring else "threads"}
        if self.share_short >= SHORT:
            fix = self.more_threads
            if self.by_ring:
                fix = "mount it without io_uring: by a ring, each CPU's requests have one thread"
            return Reason(Code.THREADS_SHORT, served, figures, fix)
        if self.share_short >= AT_TIMES:
            return Reason(Code.THREADS_SHORT_AT_TIMES, served, figures)
        if self.unanswered:
            unanswered = {**figures, "unanswered": self.unanswered}
            return Reason(Code.THREADS_UNKNOWN_UNANSWERED, {}, unanswered)
        return Reason(Code.THREADS_ENOUGH, served, figures)


@dataclass(frozen=True, repr=False)
class Queue(Rows):
    """Queues by mount, most requests first."""

    mounts: tuple[MountQueue, ...]
    facts: Facts

    ROWS = "mounts"
    JSON_HIDDEN = ("facts",)
