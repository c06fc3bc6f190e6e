"""Reads that may never return, in a child process with a time limit for each item."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from fusetools.host.files import Files
from fusetools.host.processes import read_stat
from fusetools.host.rights import limit_memory

T = TypeVar("T")
R = TypeVar("R")

_HEAD = struct.Struct("=I")
MEMORY = 1 << 30  # bytes that a child may take: it reads what others have made
BUSY = 4  # times the patience, for a child that does not sleep; and the limit
LARGEST = 16 << 20  # bytes of one answer


class Limit:
    """``seconds`` from now, without what this process and its children waited for a CPU meanwhile,
    but at most BUSY times that: a busy host hides nothing. The kernel's own figure:
    Documentation/scheduler/sched-stats.rst; where it has none, ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begin = time.monotonic()
        self._waited = -_waited_for_cpu("self")

    def end(self, child: int | None = None) -> float:
        """A time of time.monotonic(). ``child``: one that still runs."""
        waited = self._waited + _waited_for_cpu("self")
        if child is not None:
            waited += _waited_for_cpu(child)
        return self.begin + min(self.seconds + waited, BUSY * self.seconds)

    def ends(self, child: int) -> None:
        self._waited += _waited_for_cpu(child)


def _waited_for_cpu(pid: int | str) -> float:
    """Seconds since it began."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class _Child(Generic[R]):
    """A child that answers for one item after the other, each answer as its length and JSON."""

    def __init__(self, items: list[T], answer: Callable[[T], R]) -> None:
        self.reader, writer = os.pipe()
        self.buffer = b""
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        status = 1
        try:
            # The child keeps nothing of the parent's: it may stay behind in a sleep that not even
            # SIGKILL ends.
            os.close(self.reader)
            limit_memory(MEMORY)
            for number in signal.SIGINT, signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
            for item in items:
                data = json.dumps(answer(item)).encode()
                data = _HEAD.pack(len(data)) + data
                while data:
                    data = data[os.write(writer, data) :]
            status = 0
        finally:
            os._exit(status)

    def next(self, patience: float, limit: Limit) -> tuple[bool, R | None]:
        """(whether an answer came, and the answer): within ``patience`` seconds, or BUSY times that
        if the child runs or waits for a CPU, and within the limit."""
        begin = time.monotonic()
        until = min(begin + patience, limit.end(self.pid))
        while True:
            if len(self.buffer) >= _HEAD.size:
                (size,) = _HEAD.unpack_from(self.buffer)
                if size > LARGEST:
                    return False, None
                if len(self.buffer) >= _HEAD.size + size:
                    data = self.buffer[_HEAD.size : _HEAD.size + size]
                    self.buffer = self.buffer[_HEAD.size + size :]
                    return True, json.loads(data)
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                now = time.monotonic()
                last = min(begin + BUSY * patience, limit.end(self.pid))
                if now >= last or not self._runs():
                    return False, None
                until = min(now + patience / 4, last)
                continue
            part = os.read(self.reader, 1 << 16)
            if not part:
                return False, None
            self.buffer += part

    def _runs(self) -> bool:
        stat = read_stat(Files(Path("/")), self.pid)
        return stat is not None and stat.state == "R"

    def end(self) -> None:
        os.close(self.reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        for _ in range(20):  # and no longer: it may sleep until a daemon answers
            with contextlib.suppress(ChildProcessError):
                if not os.waitpid(self.pid, os.WNOHANG)[0]:
                    time.sleep(0.001)
                    continue
            return


def each(
    items: Iterable[T], answer: Callable[[T], R], patience: float, limit: Limit
) -> Iterator[tuple[T, R | None]]:
    """(item, answer(item)) of each; None for one that slept or ran for longer than _Child.next()
    waits, and for all that are left when the limit is over.

    ``answer`` runs in a child process, and its result must have a form in JSON: a tuple becomes a
    list.
    """
    left = list(items)
    while left and time.monotonic() < limit.end():
        child = _Child(left, answer)
        try:
            while left:
                came, result = child.next(patience, limit)
                item = left.pop(0)
                yield item, result
                if not came:
                    break
        finally:
            limit.ends(child.pid)
            child.end()
    for item in left:
        yield item, None
