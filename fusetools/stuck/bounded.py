"""Reads that may never return, done in a child process with a time limit for each item."""

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
MEMORY = 1 << 30  # limit in bytes for a child: it reads what other users have written
SOON = 0.005  # seconds after which the other items no longer wait for one that sleeps
BUSY = 4  # factor of the patience for a child that does not sleep
SLOWEST = 8  # maximum factor of the limit, for a host with as many busy threads for each CPU
LARGEST = 16 << 20  # limit in bytes of one answer


class Limit:
    """A limit of ``seconds`` from now, extended by this process's and its children's waits for a
    CPU.

    The limit is at most SLOWEST times ``seconds``. The extension keeps a busy host from hiding a
    hang.
    The kernel counts these waits (Documentation/scheduler/sched-stats.rst); without this figure the
    limit is ``seconds``.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begin = time.monotonic()
        self._waited = [-waited_for_cpu("self")]  # shared with the limits that part() returns

    def part(self, share: float) -> Limit:
        """Return a limit that covers the first ``share`` of this one's time.

        Later steps keep the rest, however much the earlier steps have to do.
        """
        part = copy.copy(self)
        part.seconds = share * self.seconds
        return part

    def end(self, child: int | None = None) -> float:
        """Return the end in time.monotonic()'s time. ``child``: a child that still runs."""
        waited = sum(self._waited) + waited_for_cpu("self")
        if child is not None:
            waited += waited_for_cpu(child)
        return self.begin + min(self.seconds + waited, SLOWEST * self.seconds)

    def ends(self, child: int) -> None:
        self._waited.append(waited_for_cpu(child))


def waited_for_cpu(pid: int | str) -> float:
    """Return the seconds that a process has waited for a CPU since it began."""
    return _schedstat(pid, 1)


def _schedstat(pid: int | str, field: int) -> float:
    """Return seconds that a process has run on a CPU (field 0) or waited for one (1); 0 if
    unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[field]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class _Child(Generic[R]):
    """A child that answers one item after the other; each answer is its length and JSON."""

    def __init__(self, items: list[T], answer: Callable[[T], R]) -> None:
        self.reader, writer = os.pipe()
        self.buffer = b""
        # Shared; 1: another child has taken over the remaining items
        self.overtaken = mmap.mmap(-1, 1)
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
        """Return (whether an answer came, the answer).

        Wait until ``patience`` seconds after ``begin``. If the child runs, wait until it has used
        ``busy`` seconds of CPU time, however long it waits for a CPU. It is asleep if two looks
        find it so without CPU time between them: one look may meet a page fault. Never wait longer
        than the limit.
        """
        until = min(begin + patience, limit.end(self.pid))
        at_first: float | None = None
        asleep: float | None = None  # what it had run when it was last seen asleep
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
                runs = self._runs()
                if now >= last or ran - at_first >= busy or (not runs and ran == asleep):
                    return False, None
                asleep = None if runs else ran
                until = min(now + (patience / 4 if runs else SOON), last)
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
    """Yield (item, answer(item)) of each item; None if it took longer than _Child.next() waits, or
    the limit ended before its turn.

    A slow item comes last: another child goes on with the others, immediately if the slow one
    sleeps, after ``patience`` seconds if it runs. ``answer`` runs in a child process, and its
    result must be representable in JSON: a tuple becomes a list.
    """
    left = list(items)
    slow: list[tuple[T, _Child[R], float]] = []  # and the time since which it is slow
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
    """Asks many questions within one limit.

    ``silent``: processes and threads that did not answer in time.
    """

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
        """Return the results of the items that answered before that share of the limit ended.

        The numbers of the others are added to ``silent`` and ``unknown``; of a pair, the second
        number counts.
        """
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
