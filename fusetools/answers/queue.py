"""How many requests waited for the daemon."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.requests import Names, Questions, column
from fusetools.answers.source import Source
from fusetools.results.queue import MountQueue, Queue, QueuePart

# Parts of the time in which the queue is drawn.
PARTS = 60


def queue(source: Source, filters: Filters) -> Queue:
    """How many requests wait for the daemon, and how many of its threads work, over time."""
    asked = Questions(source)
    found, facts = asked(core.native.queue, filters, PARTS)
    first = found["first"]
    mounts = []
    for one in found["mounts"]:
        if not one["parts"] and not one["unread"]:
            continue
        times = column(one["time"], "Q")
        queued, busy = column(one["queued"], "I"), column(one["busy"], "I")
        mounts.append(
            MountQueue(
                mount=_mount(asked.names, one["connection"]),
                requests=one["requests"],
                threads=one["threads"],
                start=times[0] - first if times else 0,
                end=times[-1] - first if times else 0,
                total=one["total"],
                waited=one["waited"],
                short=one["short"],
                whole=QueuePart(*one["whole"][0]) if one["whole"] else QueuePart(0, 0, 0, 0),
                unanswered=one["unanswered"],
                unread=one["unread"],
                handed=one["handed"],
                runnable=one["runnable"],
                parts=tuple(QueuePart(*part) for part in one["parts"]),
                levels=_Levels(times, queued, busy, first),
            )
        )
    return Queue(tuple(mounts), source.needing(facts))


def _mount(names: Names, connection: int | None) -> str:
    if connection is None:
        return "all mounts"
    return names.mount(connection) or f"connection {connection}"


class _Levels:
    """Millions of them: made when they are asked for."""

    def __init__(self, times: array[int], queued: array[int], busy: array[int], first: int) -> None:
        self.columns = (times, queued, busy)
        self.first = first

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return ((time - self.first, q, b) for time, q, b in zip(*self.columns))
