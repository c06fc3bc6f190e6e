"""Number of requests in the daemon's queue over time."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

from fusetools import core, session
from fusetools.answers.filters import Filters
from fusetools.answers.requests import Names, RequestQuery, column
from fusetools.answers.source import Source
from fusetools.results.queue import MountQueue, Queue, QueuePart

# Number of intervals of the queue's plot.
PARTS = 60


def queue(source: Source, filters: Filters) -> Queue:
    """Return the numbers of requests that wait and of busy daemon threads, over time."""
    query = RequestQuery(source)
    answer, facts = query(core.native.queue, filters, PARTS)
    first = answer["first"]
    mounts = []
    by_connection = {mount.connection: mount for mount in source.session.mounts}
    for fields in answer["mounts"]:
        if not fields["parts"] and not fields["unread"]:
            continue
        connection, whole = fields.pop("connection"), fields.pop("whole")
        times = column(fields.pop("time"), "Q")
        queued, busy = column(fields.pop("queued"), "I"), column(fields.pop("busy"), "I")
        parts = tuple(QueuePart(**part) for part in fields.pop("parts"))
        mounts.append(
            MountQueue(
                **fields,
                mount=mount_of(query.names, connection),
                start_ns=times[0] - first if times else 0,
                end_ns=times[-1] - first if times else 0,
                whole=QueuePart(**whole) if whole else QueuePart(0, 0, 0, 0),
                more_threads=more_threads(by_connection.get(connection), fields["threads"]),
                parts=parts,
                levels=_Levels(times, queued, busy, first),
            )
        )
    return Queue(tuple(mounts), source.with_missing_detail(facts))


# libfuse 3.12 has -o max_threads=N, with this default; libfuse 2 starts as many as it needs.
_MAX_THREADS = 10


def more_threads(mount: session.TracedMount | None, threads: int) -> str:
    """Return how a daemon that used all its ``threads`` gets more, "" if that is not known.

    Only where its command line and its library show what limits it."""
    if mount is None or not (mount.library and mount.parses):
        return ""
    if mount.program == "bindfs" and "--multithreaded" not in mount.options:
        return "mount it with --multithreaded (man bindfs, BUGS): without it, bindfs has one thread"
    if "-s" in mount.options:
        return "mount it without -s, with which libfuse uses one thread"
    version = re.match(r"libfuse3\.so\.3\.([0-9]{1,4})\b", mount.library)
    if version is None or int(version[1]) < 12:
        return ""
    given = [o.partition("=")[2] for o in mount.options if o.startswith("max_threads=")]
    most = int(given[-1]) if given else _MAX_THREADS
    if threads < most:
        return ""  # something else limits it: libfuse starts a thread when all are busy
    return f"mount it with -o max_threads=N, N more than {most}"


def mount_of(names: Names, connection: int | None) -> str:
    """Return the mount point, or a name for it if unknown."""
    if connection is None:
        return "all mounts"
    return names.mount(connection) or f"connection {connection}"


class _Levels:
    """Levels of the queue. There may be millions, so that rows are made on demand."""

    def __init__(self, times: array[int], queued: array[int], busy: array[int], first: int) -> None:
        self.columns = (times, queued, busy)
        self.first = first

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return ((time - self.first, q, b) for time, q, b in zip(*self.columns))
