"""Requests on FUSE mounts one by one, as they end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fusetools.answers.requests import error_name
from fusetools.core import native
from fusetools.now.top import catalogue_of, full_path
from fusetools.record.streaming import Streaming
from fusetools.results.trace import Ended


class Trace:
    """What ends from now on, of the requests that are wanted.

    ``operations``: none: all; ``least``: ns; ``path``: a regular expression for whole paths.
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
            t.mount.connection: t.mount.path for t in stream.plan.targets
        }
        wanted = operations, least, path
        stream.watch(catalogue_of(stream), sums=False, wanted=wanted, pids=pids, comms=comms)
        stream.begin()
        self._epoch = time.time_ns() - time.monotonic_ns()

    def ended(self) -> list[Ended]:
        """What has ended since the last time. Error: perf records no more."""
        self.stream.advance()
        return [self._request(kept) for kept in self.stream.requests.lines()]

    def sums(self) -> tuple[int, int, int, int]:
        """So far: requests of these callers, those that were wanted and not kept, since they were
        too many at once, those without a path to look at; events that the kernel dropped."""
        requests, _, dropped, pathless = self.stream.requests.sums()
        return requests, dropped, pathless, self.stream.requests.lost()

    def _request(self, kept: native.Kept) -> Ended:
        path, whole = kept["path"] or (None, False)
        mount = self._mounts.get(kept["connection"], "")
        marks = kept["marks"]
        begin = marks.get("begin", 0)
        taken = marks.get("callback_enter", marks.get("read"))
        return Ended(
            operation=kept["operation"],
            mount=mount,
            path=full_path(mount, path, whole),
            begin=begin,
            ended=(self._epoch + begin + kept["duration"]) / 1e9,
            duration_ns=kept["duration"],
            queue_ns=None if taken is None else max(taken - begin, 0),
            error=error_name(-kept["error"]),
            negative=kept["operation"] == "lookup" and kept["answer"] == 0 and not kept["error"],
            comm=kept["comm"],
            pid=kept["pid"],
            tid=kept["tid"],
            unique=kept["unique"],
            daemon_thread=kept["daemon_tid"],
            bytes=kept["size"],
            offset=kept["offset"],
        )
