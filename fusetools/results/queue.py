"""How many requests waited for the daemon."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class QueuePart:
    """An interval: requests in the queue, the daemon's threads at work."""

    mean_queued: float
    mean_busy: float
    most_queued: int
    most_busy: int


@dataclass(frozen=True)
class MountQueue:
    """The queue of one mount's daemon, from the first request to the last.

    ``threads``: those that served requests. In ns: ``total_ns``: time of its requests,
    ``waited_ns``: the part in the queue, ``short_ns``: the part of that while all threads were at
    work (a thread that had replied and only lacked a CPU to finish does not count), or, where most
    requests go by io_uring, while the thread of their own ring was;
    ``runnable_ns``: the part of ``total_ns`` while the request's thread was ready to run and had no
    CPU. ``unanswered`` requests count until they were over. It is unknown when ``unread`` requests
    were read: these times exclude them. ``handed`` requests were answered by another thread than
    the one that read them: the number of threads at work is unknown then. ``ring`` went by
    io_uring. ``parts`` are of equal length.
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
    levels: Iterable[tuple[int, int, int]]  # begin (ns), requests in the queue, threads at work

    unanswered: int = 0
    unread: int = 0
    handed: int = 0
    ring: int = 0
    runnable_ns: Ns = 0

    JSON_HIDDEN = ("levels",)
    JSON_SHOWN = ("share_short", "share_runnable")

    @property
    def by_ring(self) -> bool:
        """Most went by io_uring: each CPU's requests have a ring and its thread of their own."""
        return 2 * self.ring > self.requests

    @property
    def share_short(self) -> float:
        """Share of the requests' time in the queue while all threads were at work."""
        return self.short_ns / self.total_ns if self.total_ns else 0.0

    @property
    def share_runnable(self) -> float:
        """Share of the requests' time while their threads were ready to run and had no CPU."""
        return self.runnable_ns / self.total_ns if self.total_ns else 0.0


@dataclass(frozen=True, repr=False)
class Queue(Rows):
    """By mount, most requests first."""

    mounts: tuple[MountQueue, ...]
    facts: Facts

    ROWS = "mounts"
    JSON_HIDDEN = ("facts",)
