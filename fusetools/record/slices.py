"""Stacks of waits while they are many: taken in slices of time, as each costs more than its event.

ftrace records every wait. perf takes the stacks of all of them while they are few. Where they
are many it does in a slice of each period alone, and the others get that of another one alike
(native/core/src/write/waits.rs). A rare long wait has its own all the same: of a daemon's calls
that may wait for somebody the user's stack is copied at all times, unless those are many, too.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fusetools.plan.ftrace import OF_BOTH, PAIRED
from fusetools.plan.planner import ProbePlan

PERIOD, SLICE = 0.05, 0.004  # s
# Events a second from which on waits are many: some 14,000 requests. Below it stacks cost at most
# 6 % of one CPU.
MANY = 250_000
# How often it is looked whether they have become many, s; and the part of this process's time that
# looking takes at most, as there may be many CPUs to count on.
LOOK, MOST = 0.01, 0.01
# s in which so many come, before they are many: a command of some hundred requests has all stacks.
BURST = 0.04
LOOKED = 0.25  # s back, while they are many
SWITCH = OF_BOTH[0]


class Look(NamedTuple):
    """A look at the recording: events, and bytes that perf and ftrace had written by then."""

    time: float
    events: int
    of_perf: int
    of_ftrace: int


class Slices:
    """The slices of time in which the stacks of frequent waits are taken.

    ``tell``: sends a command to perf, and waits up to so many seconds for its answer; ``events``:
    returns the number of events that ftrace has recorded; ``sizes``: returns the bytes that perf
    and ftrace have written. Create it when the workload begins: earlier events do not count.
    """

    def __init__(
        self,
        plan: ProbePlan,
        tell: Callable[[str, float], object],
        events: Callable[[], int],
        sizes: Callable[[], tuple[int, int]],
    ) -> None:
        stacks = (event.name for event in plan.events if event.stack and event.name in PAIRED)
        # A wait's stack is put together from that of its call and that of its switch: the latter is
        # not taken without the former.
        self._all = tuple(sorted(dict.fromkeys(stacks), key=SWITCH.__eq__))
        self._in_part: tuple[str, ...] = ()
        self._off: set[str] = set()
        self._slice = False
        self._tell, self._events, self._sizes = tell, events, sizes
        self._since = time.monotonic()
        self._looks = deque([self._look(self._since)])
        self._due = self._since + LOOK

    def go_on(self) -> float:
        """Begin or end a slice when it is time. Return the seconds until the next call."""
        now = time.monotonic()
        if now >= self._due:
            begin = time.thread_time()
            pause = self._ahead(now)
            if not self._in_part:
                pause = max(pause, (time.thread_time() - begin) / MOST)
            self._due = time.monotonic() + pause
        return max(self._due - time.monotonic(), 0.0)

    def _look(self, now: float) -> Look:
        return Look(now, self._events(), *self._sizes())

    def _ahead(self, now: float) -> float:
        if self._slice:
            self._slice = False
            self._switch(False)
            return PERIOD * random.uniform(0.5, 1.5)  # not in step with what happens
        self._looks.append(self._look(now))
        back = LOOKED if self._in_part else BURST
        while len(self._looks) > 2 and self._looks[1].time <= now - back:
            self._looks.popleft()
        first, last = self._looks[0], self._looks[-1]
        seconds = last.time - first.time
        if last.events - first.events <= MANY * (seconds if self._in_part else max(seconds, BURST)):
            if self._in_part:
                self._switch(True)
                self._in_part = ()
            return LOOK
        if not self._in_part:
            self._in_part, self._since = (SWITCH,), now
            self._looks = deque([last])
            self._switch(False)
            return PERIOD
        # With the stacks of few switches perf writes more than ftrace with all events.
        of_perf, of_ftrace = last.of_perf - first.of_perf, last.of_ftrace - first.of_ftrace
        if first.time > self._since + PERIOD and of_perf > of_ftrace:
            self._in_part = self._all
        self._slice = True
        self._switch(True)
        return SLICE

    def _switch(self, on: bool) -> None:
        """Switch all that are off, or those that are taken in part."""
        names = self._all if on else reversed(self._in_part)
        for name in [name for name in names if (name in self._off) == on]:
            self._tell(f"{'enable' if on else 'disable'} {name}", 1.0)
        self._off = set() if on else {*self._in_part}
