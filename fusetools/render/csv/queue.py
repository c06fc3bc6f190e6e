"""fusetools queue as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fusetools.csvfile import lines, written
from fusetools.results.queue import Queue


def render(result: Queue) -> Iterator[str]:
    """Yield a line per change: ns since the recording's first event, and the new values."""
    yield written(("mount", "time_ns", "queued", "busy"), ())
    for mount in result.mounts:
        rows = ((mount.mount, *level) for level in mount.levels)
        while some := list(islice(rows, 10_000)):
            yield lines(some)
