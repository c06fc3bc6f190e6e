"""Whether a flight recorder's conditions are true at this moment.

Each request sets it off once, also one that hangs for hours. What follows soon waits its turn,
longer each time, or a night of errors would leave nothing of how it began. Nothing passes by in
silence.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from fusetools.answers.requests import error_name
from fusetools.core import native
from fusetools.errors import Error
from fusetools.figures import duration, plural, took
from fusetools.now import machine
from fusetools.now.top import catalogue_of
from fusetools.plan.conditions import Condition, Failed, Slow, Waiting
from fusetools.plan.planner import ProbePlan
from fusetools.record.session import Recording
from fusetools.record.streaming import Streaming

OLDEST = 1024  # requests under way that are looked at
NEVER = (1 << 63) - 1  # ns that no request takes
LONGEST = 3600.0  # seconds that a condition waits


def requests_only(plan: ProbePlan) -> ProbePlan:
    """The plan with no more than when requests begin and end. Error: it does not tell that."""
    probes = [p for p in plan.probes if p.layer == "request" and p.role in ("begin", "end")]
    names = {probe.recorded_as for probe in probes}
    names |= {"fuse:fuse_request_send", "fuse:fuse_request_end"}
    events = [event for event in plan.events if event.name in names]
    if len(events) < 2:
        raise Error(
            "requests cannot be watched here",
            "this kernel has neither the tracepoints fuse:* (Linux 6.12) nor kprobes",
            "--when 'waiting > 20', or none and: fusetools snap",
        )
    plain = [replace(event, stack="") for event in events]
    return replace(plan, probes=tuple(probes), events=tuple(plain))


class Requests(Streaming):
    """The requests of a recording that is under way: a perf of its own, on probes that are there
    already."""

    def __init__(self, recording: Recording) -> None:
        plan = requests_only(recording.plan)
        of = recording
        super().__init__(of.lock, of.request, of.arguments, of.user, of.facts, plan)
        self.tracefs = of.tracefs

    def arm(self) -> None:
        self.raw = self._folder() / "none"
        self._start_perf(self._pipe_command_line)

    def follow(self, conditions: Sequence[Condition]) -> None:
        slow = [one for one in conditions if isinstance(one, Slow)]
        operations = {name for one in slow for name in one.operations} or {"init"}
        least = min((one.least for one in slow), default=NEVER)
        self.watch(catalogue_of(self), sums=False, wanted=(sorted(operations), least, None))
        failed = [one for one in conditions if isinstance(one, Failed)]
        self.requests.set_errors(sorted({number for one in failed for number in one.errors}))
        self.begin()

    def close(self) -> None:
        if self.perf is not None:
            self.perf.pause()
            self.perf.stop()
            self.perf.close()


# Connection, unique, thread of the caller.
Key = tuple[Optional[int], Optional[int], Optional[int]]


class Cause(NamedTuple):
    """``began``: ns on the recording's clock; None: it has no beginning."""

    why: str
    began: int | None


class _Due(NamedTuple):
    last: Cause
    seen: float  # when
    number: int


@dataclass
class _Look:
    """What was seen since the last look: requests that ended and were slow or failed, and those
    that are under way."""

    ended: list[native.Kept]
    under_way: list[native.Kept]


class Conditions:
    """A context manager. ``connections``: of the traced mounts, with their paths. ``seconds``: for
    so long after a recording that it has set off a condition sets off no other, and twice as long
    after each that follows without a rest. ``warn``: with what passed by without a recording."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        requests: Requests | None,
        connections: dict[int, str],
        seconds: float,
        warn: Callable[[str], None],
    ) -> None:
        self._conditions = conditions
        self._requests = requests
        self._connections = connections
        self._seconds = seconds
        self._warn = warn
        self._due: dict[Condition, _Due] = {}
        self._waits: dict[Condition, tuple[float, float]] = {}  # since when, and how long
        # Requests under way that have set it off; since when many wait, infinity: it has.
        self._seen_of: set[tuple[Condition, Key]] = set()
        self._above: dict[tuple[Condition, int], float] = {}
        self._files = contextlib.ExitStack()
        self._directory: int | None = None

    def __enter__(self) -> Conditions:
        if any(isinstance(one, Waiting) for one in self._conditions):
            _, self._directory = self._files.enter_context(machine.fusectl())
            if self._directory is None:
                self._files.close()
                raise Error(
                    "waiting requests cannot be counted",
                    "fusectl is not mounted, and cannot be",
                    "mount -t fusectl none /sys/fs/fuse/connections",
                )
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def look(self) -> Cause | None:
        """What a recording is to be written for. To be called several times a second. Error: perf
        has ended."""
        seen, now = self._seen(), time.monotonic()
        for one in self._conditions:
            if new := self._new(one, seen):
                before = self._due[one].number if one in self._due else 0
                self._due[one] = _Due(new[-1], now, before + len(new))
        under_way = {_key(request) for request in seen.under_way}
        self._seen_of = {(one, key) for one, key in self._seen_of if key in under_way}
        if any(now >= sum(self._waits.get(one, (0.0, 0.0))) for one in self._due):
            return self.due
        for one in [one for one, due in self._due.items() if due.seen < now - 2 * self._seconds]:
            self._warn(f"no recording, too soon after the last one: {self._text(one, now)}")
            del self._due[one]
        return None

    @property
    def due(self) -> Cause | None:
        """What set it off since the last recording, in the order of its conditions."""
        if not self._due:
            return None
        now = time.monotonic()
        texts = [self._text(one, now) for one in self._conditions if one in self._due]
        began = [due.last.began for due in self._due.values() if due.last.began is not None]
        return Cause("; ".join(texts), min(began, default=None))

    def _text(self, one: Condition, now: float) -> str:
        due = self._due[one]
        age = now - due.seen
        others = f" ({due.number - 1:,} more before)" if due.number > 1 else ""
        return f"{one.text}: {due.last.why}{f', {took(age)} ago' if age >= 1 else ''}{others}"

    def taken(self) -> None:
        """A recording has been written of what is due."""
        now = time.monotonic()
        for one in self._due:
            since, wait = self._waits.get(one, (0.0, 0.0))
            again = wait and now - since < 2 * wait
            longer = min(2 * wait, max(LONGEST, self._seconds)) if again else self._seconds
            self._waits[one] = now, longer
        self._due.clear()

    def _seen(self) -> _Look:
        if self._requests is None:
            return _Look([], [])
        self._requests.advance()
        slow = [one.least for one in self._conditions if isinstance(one, Slow)]
        under_way: list[native.Kept] = []
        if slow:
            kept, _ = self._requests.requests.under_way(min(slow), OLDEST)
            under_way = [one for one, unsure in kept if not unsure]
        return _Look(list(self._requests.requests.lines()), under_way)

    def _new(self, one: Condition, seen: _Look) -> list[Cause]:
        """What sets it off and has not done so before, the newest last."""
        if isinstance(one, Waiting):
            return self._waiting(one)
        if isinstance(one, Failed):
            return [
                _cause(request, f"ended with {error_name(-request['error'])}")
                for request in seen.ended
                if -request["error"] in one.errors
            ]
        new = [
            (request, how)
            for how, requests in (("took", seen.ended), ("in flight for", seen.under_way))
            for request in requests
            if request["operation"] in one.operations
            and request["duration"] > one.least
            and (one, _key(request)) not in self._seen_of
        ]
        self._seen_of |= {(one, _key(request)) for request, _ in new}
        return [_cause(request, f"{how} {duration(request['duration'])}") for request, how in new]

    def _waiting(self, one: Waiting) -> list[Cause]:
        assert self._directory is not None
        new = []
        for connection, path in self._connections.items():
            count = machine.counter(self._directory, connection, "waiting") or 0
            if count <= one.count:
                self._above.pop((one, connection), None)
                continue
            since = self._above.setdefault((one, connection), time.monotonic())
            if (time.monotonic() - since) * 1e9 >= one.ns:
                self._above[one, connection] = math.inf
                new.append(Cause(f"{plural(count, 'request')} on {path}", int(since * 1e9)))
        return new


def _key(request: native.Kept) -> Key:
    return request["connection"], request["unique"], request["tid"]


def _cause(request: native.Kept, what: str) -> Cause:
    pid = f" (pid {request['pid']})" if request["pid"] else ""
    who = f"{request['operation']} of {request['comm'] or 'a process'}{pid}"
    return Cause(f"{who} {what}", min(request["marks"].values()))
