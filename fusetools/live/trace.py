"""Requests on FUSE mounts, one by one as they end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fusetools.answers.requests import answered_bytes, error_name
from fusetools.core import native
from fusetools.live.top import full_path
from fusetools.record.streaming import Streaming
from fusetools.results.trace import Ended


class Trace:
    """The wanted requests that end from now on.

    ``operations``: empty: all; ``least``: ns; ``path``: a regular expression for whole paths.
    """

    def __init__(
        self,
        stream: Streaming,
        operations: Sequence[str],
        least: int = 0,
        path: str | None = None,
        pids: Sequence[int] = (),
        comms: Sequence[str] = (),
    ) -> None:
        self.stream = stream
        self._mounts: dict[int | None, str] = {
            t.mount.connection: t.mount.path for t in stream.job.plan.targets
        }
        wanted = operations, least, path
        stream.watch(stream.catalogue(), sums=False, wanted=wanted, pids=pids, comms=comms)
        stream.begin()
        self._epoch = time.time_ns() - time.monotonic_ns()

    def ended(self) -> list[Ended]:
        """Return the requests that ended since the last call. Raise Error if perf has exited."""
        self.stream.advance()
        return [self._request(row) for row in self.stream.requests.lines()]

    def sums(self) -> tuple[int, int, int, int]:
        """Return counts so far: requests of these callers, wanted requests that were dropped
        because too many came at once, requests without a path to match, events that the kernel
        dropped."""
        requests, _, dropped, pathless = self.stream.requests.sums()
        return requests, dropped, pathless, self.stream.requests.lost()

    def _request(self, row: native.NamedRequest) -> Ended:
        path, whole = row.path or (None, False)
        mount = self._mounts.get(row.connection, "")
        marks = dict(row.marks)
        begin = marks.get("begin", 0)
        taken = marks.get("callback_enter", marks.get("read"))
        return Ended(
            operation=row.operation,
            mount=mount,
            path=full_path(mount, path, whole),
            begin_ns=begin,
            ended_seconds=(self._epoch + begin + row.duration) / 1e9,
            duration_ns=row.duration,
            queue_ns=None if taken is None else max(taken - begin, 0),
            error=error_name(-row.error),
            negative=row.operation == "lookup" and row.answer == 0 and not row.error,
            comm=row.comm,
            pid=row.pid,
            tid=row.tid,
            unique=row.unique,
            daemon_thread=row.daemon_tid,
            bytes=row.size,
            offset_bytes=row.offset,
            answered_bytes=answered_bytes(row),
        )
