"""Stacks of waits while they are many: taken in slices of time, as each costs more than its event.

ftrace is told of every wait. perf takes the stacks of all of them while they are few, so that a
rare long one has its own; where they are many it does in a slice of each period alone, and the
others get that of another one alike (native/core/src/write/waits.rs).
"""

from __future__ import annotations

import random
import time
from collections import deque

from fusetools.names import READS
from fusetools.plan.instances import OF_BOTH
from fusetools.plan.planner import ProbePlan
from fusetools.record.instance import Instance
from fusetools.record.perf import Perf

PERIOD, SLICE = 0.05, 0.004  # s
# Bytes of events a second from which on waits are many: some 14,000 requests. Below it stacks cost
# at most 6 % of one CPU.
MANY = 8_000_000
LOOKED = 0.25  # s back: they are written in pieces of 0.04 s


class Slices:
    def __init__(self, plan: ProbePlan, perf: Perf, ring: Instance) -> None:
        of_waits = (*OF_BOTH, *READS)
        events = [event for event in plan.events if event.stack and event.name in of_waits]
        self._names = tuple(dict.fromkeys(event.name for event in events))
        self._perf, self._ring = perf, ring
        self._on, self._slice = True, False
        now = time.monotonic()
        self._due = now + PERIOD
        self._written = deque([(now, ring.written())])

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
        self._written.append((now, self._ring.written()))
        while self._written[1][0] <= now - LOOKED:
            self._written.popleft()
        since, before = self._written[0]
        many = self._written[-1][1] - before > MANY * (now - since)
        if many and self._on:
            self._switch(False)
        elif not self._on:
            self._slice = many
            self._switch(True)
            return SLICE if many else PERIOD
        return PERIOD

    def _switch(self, on: bool) -> None:
        self._on = on
        for name in self._names:
            self._perf.tell(f"{'enable' if on else 'disable'} {name}", 1.0)
