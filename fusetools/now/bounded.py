"""Reads that may never return, in a child process with a time limit for each item."""

from __future__ import annotations

import copy
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
        self._waited = [-_waited_for_cpu("self")]  # shared with its parts

    def part(self, share: float) -> Limit:
        """Return the limit of the first ``share`` of this one's time. What comes later keeps the
        rest, however much there is to do before."""
        part = copy.copy(self)
        part.seconds = share * self.seconds
        return part

    def end(self, child: int | None = None) -> float:
        """A time of time.monotonic(). ``child``: one that still runs."""
        waited = sum(self._waited) + _waited_for_cpu("self")
        if child is not None:
            waited += _waited_for_cpu(child)
        return self.begin + min(self.seconds + waited, BUSY * self.seconds)

    def ends(self, child: int) -> None:
        self._waited.append(_waited_for_cpu(child))


def _waited_for_cpu(pid: int | str) -> float:
    """Seconds since it began."""
    return _schedstat(pid, 1)


def _schedstat(pid: int | str, field: int) -> float:
    """Return seconds that a process has been on a CPU (field 0) or waited for one (1); 0 if the
    kernel does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[field]) / 1e9
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
        """Return (whether an answer came, the answer). Wait for it until ``patience`` seconds after
        ``begin``; if the child runs, until it has been on a CPU for ``busy`` seconds, however long
        it waits for one. Never wait longer than the limit."""
        until = min(begin + patience, limit.end(self.pid))
        at_first: float | None = None
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
                ran = _schedstat(self.pid, 0) or now
                at_first = ran if at_first is None else at_first
                last = limit.end(self.pid)
                if now >= last or ran - at_first >= busy or not self._runs():
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
    """Yield (item, answer(item)) of each. None: it slept or ran for longer than _Child.next()
    waits, or the limit was over before its turn.

    A slow one comes last: another child goes on with the others, at once if the slow one sleeps,
    after ``patience`` seconds if it runs.

    ``answer`` runs in a child process, and its result must have a form in JSON: a tuple becomes a
    list.
    """
    left = list(items)
    slow: list[tuple[T, _Child[R], float]] = []  # and since when
    children: list[_Child[R]] = []
    try:
        while left and time.monotonic() < limit.end():
            child = _Child(left, answer)
            children.append(child)
            came = True
            while left and came:
                begin = time.monotonic()
                came, result = child.next(min(SOON, patience), patience, limit, begin)
                item = left.pop(0)
                if came:
                    yield item, result
                else:
                    child.overtaken[0] = 1
                    slow.append((item, child, begin))
            if came:
                limit.ends(child.pid)
        for item, child, begin in slow:
            yield item, child.next(patience, BUSY * patience, limit, begin)[1]
            limit.ends(child.pid)
    finally:
        for child in children:
            os.close(child.reader)
        end_children([child.pid for child in children])
    for item in left:
        yield item, None


class Asker:
    """Asks many within one limit. ``silent``: processes and threads that did not answer in time."""

    def __init__(self, limit: float, patience: float) -> None:
        self.limit = Limit(limit)
        self.patience = patience
        self.silent: list[int] = []

    def each(
        self,
        items: Iterable[T],
        answer: Callable[[T], R | None],
        share: float = 1.0,
        unknown: list[int] | None = None,
    ) -> list[R]:
        """Return the results of those that answered before that share of the limit was over. The
        others are silent: their numbers, of pairs the second one, are added to ``unknown``, too."""
        results = []
        for item, result in each(items, answer, self.patience, self.limit.part(share)):
            if result is None:
                who = item[1] if isinstance(item, tuple) else item
                if isinstance(who, int) and not isinstance(who, bool):
                    self.silent.append(who)
                    if unknown is not None:
                        unknown.append(who)
            else:
                results.append(result)
        return results
