"""The overhead of recording, measured while it is armed: round trips between two processes of ours.

A loop of calls that do nothing has all that it needs in the CPU's caches: a probe pair seems to
cost three quarters there, and an event two thirds, of what they cost between a caller and a daemon
(docs/design/recording-cost.md). So these two processes wake each other as well.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from fusetools.core import native
from fusetools.host.files import end_children, keep_only
from fusetools.record.signals import with_parent

TRIPS = 40  # round trips between two looks at the clocks
ROUNDS = 15  # without what is measured, and with it: CPUs are quicker at times
SYSTEM_CALLS = 4  # of a round trip: each process reads a byte and writes one
_NOTES = struct.Struct("3q")
PATIENCE = 10.0  # seconds for a round trip
OF_ROUND_TRIPS = (
    *("raw_syscalls:sys_enter", "raw_syscalls:sys_exit"),
    *("sched:sched_switch", "sched:sched_waking"),
)


@dataclass(frozen=True)
class RoundTrip:
    """The averages of a round trip: CPU time of both processes, and beginnings and ends of system
    calls, switches of a CPU to another thread, and wake-ups."""

    ns: float
    events: float


class Costs:
    """Made before the workload, whose threads have greater numbers: what is recorded of them is not
    recorded of these processes. To be ended by close(). None: it cannot be measured."""

    def __init__(self) -> None:
        self._processes = _Processes()

    def close(self) -> None:
        self._processes.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """The two processes; none if they could not be started."""
        return self._processes.pids

    def event(self, switch: Callable[[bool], None]) -> float | None:
        """ns of an event: of the two of each system call of these processes, on and off."""
        more = _difference(self._processes, switch)
        return more[0] / (2 * SYSTEM_CALLS) if more else None

    def thrown_away(self, switch: Callable[[bool], None]) -> float | None:
        """ns of an event that is looked at and not recorded, on and off."""
        more = _difference(self._processes, switch)
        return more[0] / more[1] if more else None

    @staticmethod
    def recorded_event(switch: Callable[[bool], None]) -> float | None:
        """ns of an event of OF_ROUND_TRIPS, on and off, where those of younger processes are
        recorded."""
        processes = _Processes()
        try:
            more = _difference(processes, switch)
        finally:
            processes.close()
        return more[0] / more[1] if more else None

    def pair(self) -> int | None:
        """ns of the two probes of a call."""
        more = _difference(self._processes, lambda _: None, calls=1)
        return round(more[0]) if more else None


def _difference(
    processes: _Processes, switch: Callable[[bool], None], calls: int = 0
) -> tuple[float, float] | None:
    """Return how much longer a round trip with so many calls takes when the events are on (median
    of the rounds), and the number of events in one round trip."""
    more, events = [], 0.0
    for _ in range(ROUNDS):
        switch(False)
        off = processes.round_trip(0)
        switch(True)
        on = processes.round_trip(calls)
        if off is None or on is None:
            return None
        more.append(on.ns - off.ns)
        events += on.events / ROUNDS
    return max(sorted(more)[ROUNDS // 2], 0.0), events


class _Processes:
    """Two, on one CPU. They end when this one does."""

    def __init__(self) -> None:
        self._orders = self._notes = -1
        self._caller = 0
        self.pids: tuple[int, ...] = ()
        with contextlib.suppress(OSError):
            orders, self._orders = os.pipe()
            self._notes, notes = os.pipe()
            try:
                parent = os.getpid()
                self._caller = _forked(lambda: self._call(orders, notes, parent))
            finally:
                os.close(orders)
                os.close(notes)
            if answerer := self._noted(1):
                self.pids = (self._caller, answerer[0][0])

    def close(self) -> None:
        if self._caller:
            end_children([self._caller])  # and so the other one, which reads from it
        for descriptor in (self._orders, self._notes):
            if descriptor >= 0:
                os.close(descriptor)
        self._orders = self._notes = -1
        self._caller = 0

    def round_trip(self, calls: int) -> RoundTrip | None:
        """Send a byte from one process to the other, which calls the probed function so many times
        and sends one back."""
        with contextlib.suppress(OSError):
            os.write(self._orders, bytes([calls]))
        notes = self._noted(2)
        if not notes:
            return None
        ns, waits, others = map(sum, zip(*notes))
        # A process that waited was woken.
        return RoundTrip(ns / TRIPS, 2 * SYSTEM_CALLS + (2 * waits + others) / TRIPS)

    def _noted(self, count: int) -> list[tuple[int, ...]]:
        """Return so many of the processes' notes; none if they do not come."""
        notes = b""
        with contextlib.suppress(OSError):
            while len(notes) < count * _NOTES.size:
                ready = select.select([self._notes], [], [], PATIENCE)[0]
                part = os.read(self._notes, 1 << 16) if ready else b""
                if not part:
                    break
                notes += part
        return list(_NOTES.iter_unpack(notes)) if len(notes) == count * _NOTES.size else []

    def _call(self, orders: int, notes: int, parent: int) -> None:
        with_parent(parent, signal.SIGKILL)
        keep_only(orders, notes)
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        # The process that wakes the other one continues until it waits itself: else some round
        # trips have a wake-up less, and take a fifth less.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        os.write(notes, _NOTES.pack(_forked(lambda: self._answer(asked, answer, notes)), 0, 0))
        os.close(asked)
        os.close(answer)
        while (calls := os.read(orders, 1)) != b"":

            def trip(calls: bytes = calls) -> None:
                os.write(ask, calls)
                os.read(answered, 1)

            _note(trip, notes)

    @staticmethod
    def _answer(asked: int, answer: int, notes: int) -> None:
        keep_only(asked, answer, notes)

        def trip() -> None:
            if not (calls := os.read(asked, 1)):
                os._exit(0)
            if calls[0]:
                native.calibrate(calls[0])
            os.write(answer, b"x")

        while True:
            _note(trip, notes)


def _forked(action: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    return pid


def _note(trip: Callable[[], None], output: int) -> None:
    """CPU time and switches of this process, of all but the first round trip."""
    trip()
    before = _used()
    for _ in range(TRIPS):
        trip()
    os.write(output, _NOTES.pack(*(now - then for now, then in zip(_used(), before))))


def _used() -> tuple[int, int, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    ns = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
    return ns, usage.ru_nvcsw, usage.ru_nivcsw
