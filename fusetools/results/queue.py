"""How many requests waited for the daemon."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


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
    start: Ns  # ns since the recording's first event
    end: Ns
    total: Ns
    waited: Ns
    short: Ns
    whole: QueuePart
    parts: tuple[QueuePart, ...]
    levels: Iterable[
        tuple[int, int, int]
    ]  # since when (ns), requests in the queue, threads at work

    unanswered: int = 0
    unread: int = 0
    handed: int = 0
    runnable: Ns = 0

    JSON_HIDDEN = ("levels",)
    JSON_SHOWN = ("share_short", "share_runnable")

    @property
    def share_short(self) -> float:
        """Of the requests' time: in the queue while all threads were at work."""
        return self.short / self.total if self.total else 0.0

    @property
    def share_runnable(self) -> float:
        """Of the requests' time: their threads were ready to run and had no CPU."""
        return self.runnable / self.total if self.total else 0.0


@dataclass(frozen=True, repr=False)
class Queue(Rows):
    """By mount, most requests first."""

    mounts: tuple[MountQueue, ...]
    facts: Facts

    ROWS = "mounts"
    JSON_HIDDEN = ("facts",)
