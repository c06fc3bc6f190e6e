"""Stacks of waits while they are many: taken in slices of time, as each costs more than its event.

ftrace is told of every wait. perf takes the stacks of all of them while they are few. Where they
are many it does in a slice of each period alone, and the others get that of another one alike
(native/core/src/write/waits.rs). A rare long wait has its own all the same: of a daemon's calls
that may wait for somebody the user's stack is copied at all times, unless those are many, too.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable

from fusetools.plan.instances import OF_BOTH, PAIRED
from fusetools.plan.planner import ProbePlan
from fusetools.record.perf import Perf

PERIOD, SLICE = 0.05, 0.004  # s
# Bytes of events a second from which on waits are many: some 14,000 requests. Below it stacks cost
# at most 6 % of one CPU.
MANY = 8_000_000
LOOKED = 0.25  # s back: they are written in pieces of 0.04 s
SWITCH = OF_BOTH[0]


class Slices:
    """``sizes``: bytes of what perf has written, and of ftrace's events. Made when the workload
    begins: events that arming made may be written until a while later, and tell nothing of it."""

    def __init__(self, plan: ProbePlan, perf: Perf, sizes: Callable[[], tuple[int, int]]) -> None:
        stacks = (event.name for event in plan.events if event.stack and event.name in PAIRED)
        # A wait's stack is put together from that of its call and that of its switch: the latter is
        # not taken without the former.
        self._all = tuple(sorted(dict.fromkeys(stacks), key=SWITCH.__eq__))
        self._in_part: tuple[str, ...] = ()
        self._off: set[str] = set()
        self._slice = False
        self._perf, self._sizes = perf, sizes
        now = time.monotonic()
        self._due = now + PERIOD
        self._since = now
        self._written: deque[tuple[float, int, int]] = deque()

    def go_on(self) -> float:
        """Begins or ends a slice when it is time; seconds until it wants to be called again."""
        now = time.monotonic()
        if now >= self._due:
            pause = self._ahead(now)
            self._due = time.monotonic() + pause
        return max(self._due - time.monotonic(), 0.0)

    def _ahead(self, now: float) -> float:
        if self._slice:
            self._slice = False
            self._switch(False)
            return PERIOD * random.uniform(0.5, 1.5)  # not in step with what happens
        self._written.append((now, *self._sizes()))
        if len(self._written) == 1:
            return PERIOD
        while self._written[1][0] <= now - LOOKED:
            self._written.popleft()
        since, *before = self._written[0]
        of_perf, of_ftrace = (more - size for more, size in zip(self._written[-1][1:], before))
        if of_ftrace <= MANY * (now - since):
            self._switch(True)
            self._in_part = ()
            return PERIOD
        if not self._in_part:
            self._in_part, self._since = (SWITCH,), now
            self._switch(False)
            return PERIOD
        # With the stacks of few switches perf writes more than ftrace with all events.
        if since > self._since + PERIOD and of_perf > of_ftrace:
            self._in_part = self._all
        self._slice = True
        self._switch(True)
        return SLICE

    def _switch(self, on: bool) -> None:
        """All that are off, or those that are taken in part."""
        names = self._all if on else reversed(self._in_part)
        for name in [name for name in names if (name in self._off) == on]:
            self._perf.tell(f"{'enable' if on else 'disable'} {name}", 1.0)
        self._off = set() if on else {*self._in_part}
