"""Reads that may never return, in a child process with a time limit for each item."""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from fusetools.host.files import Files, end_children, keep_only
from fusetools.host.processes import read_stat
from fusetools.host.rights import limit_memory

T = TypeVar("T")
R = TypeVar("R")

_HEAD = struct.Struct("=I")
MEMORY = 1 << 30  # bytes that a child may take: it reads what others have made
SOON = 0.005  # seconds after which others need not wait for one that sleeps
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
        self.overtaken = mmap.mmap(-1, 1)  # shared: 1: another child has the items that are left
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        status = 1
        try:
            keep_only(writer)
            limit_memory(MEMORY)
            for number in signal.SIGINT, signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
            for item in items:
                data = json.dumps(answer(item)).encode()
                data = _HEAD.pack(len(data)) + data
                while data:
                    data = data[os.write(writer, data) :]
                if self.overtaken[0]:
                    break
            status = 0
        finally:
            os._exit(status)

    def next(
        self, patience: float, busy: float, limit: Limit, begin: float
    ) -> tuple[bool, R | None]:
        """(whether an answer came, and the answer): within ``patience`` seconds from ``begin`` on,
        or ``busy`` if the child runs or waits for a CPU, and within the limit."""
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
            left = max(until - time.monotonic(), 0)
            if not select.select([self.reader], [], [], left)[0]:
                now = time.monotonic()
                last = min(begin + busy, limit.end(self.pid))
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


def each(
    items: Iterable[T], answer: Callable[[T], R], patience: float, limit: Limit
) -> Iterator[tuple[T, R | None]]:
    """(item, answer(item)) of each; None for one that slept or ran for longer than _Child.next()
    waits, and for all that are left when the limit is over. Who is slow comes last: meanwhile
    another child goes on with the others.

    ``answer`` runs in a child process, and its result must have a form in JSON: a tuple becomes a
    list.
    """
    left = list(items)
    busy = BUSY * patience
    slow: list[tuple[T, _Child[R], float]] = []  # and since when
    children: list[_Child[R]] = []
    try:
        while left and time.monotonic() < limit.end():
            child = _Child(left, answer)
            children.append(child)
            came = True
            while left and came:
                begin = time.monotonic()
                came, result = child.next(min(SOON, patience), busy, limit, begin)
                item = left.pop(0)
                if came:
                    yield item, result
                else:
                    child.overtaken[0] = 1
                    slow.append((item, child, begin))
            if came:
                limit.ends(child.pid)
        for item, child, begin in slow:
            yield item, child.next(patience, busy, limit, begin)[1]
            limit.ends(child.pid)
    finally:
        for child in children:
            os.close(child.reader)
        end_children([child.pid for child in children])
    for item in left:
        yield item, None
