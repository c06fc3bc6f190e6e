"""Triggers of a flight recorder: are its conditions true at this moment?

Each request triggers a condition once, even if it hangs for hours. A trigger soon after a recording
is delayed, longer each time: otherwise a night of errors would push out the recordings of its
beginning. Triggers that follow each other make one recording. No trigger is dropped silently.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NamedTuple, Optional

from fusetools.answers.requests import error_name
from fusetools.core import native
from fusetools.errors import Error
from fusetools.figures import duration, plural, took
from fusetools.host.fusectl import counter, fusectl
from fusetools.patterns import expression
from fusetools.plan.conditions import Condition, Failed, Slow, Waiting
from fusetools.plan.planner import ProbePlan
from fusetools.record.session import Recording
from fusetools.record.streaming import Streaming
from fusetools.results.stuck import Trigger

OLDEST = 1024  # requests in flight that are examined
NEVER = (1 << 63) - 1  # ns; longer than any request
LONGEST = 3600.0  # seconds between two recordings of a condition
MOST = 256  # listed triggers of a recording


def requests_only(plan: ProbePlan) -> ProbePlan:
    """Return the plan reduced to the begins and ends of requests. Raise Error if it lacks them."""
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
    """The requests of a running recording: a perf of their own, on the existing probes."""

    def __init__(self, recording: Recording) -> None:
        job = recording.job.copied()
        job.plan = requests_only(job.plan)
        super().__init__(job, recording.probes)

    def follow(self, conditions: Sequence[Condition]) -> None:
        slow = [c for c in conditions if isinstance(c, Slow)]
        operations = [expression(c.pattern) for c in slow] or [expression("init")]
        least = min((c.least for c in slow), default=NEVER)
        self.watch(self.catalogue(), sums=False, wanted=(operations, least, None))
        failed = [c for c in conditions if isinstance(c, Failed)]
        self.requests.set_errors(sorted({number for c in failed for number in c.errors}))
        self.begin()
        self.requests.hold()


# Connection, unique, thread of the caller.
Key = tuple[Optional[int], Optional[int], Optional[int]]


class Cause(NamedTuple):
    """A trigger. ``began``: ns on the recording's clock; None if the request's begin is unknown.
    ``triggers``: the requests, oldest first."""

    why: str
    began: int | None
    triggers: tuple[Trigger, ...] = ()


# By condition: the start of its delay after a recording, and its length in seconds.
Waits = dict[Condition, tuple[float, float]]


@dataclass
class _Due:
    """Triggers of a condition: the newest, the times of it and of the first, and their number."""

    last: Cause
    seen: float
    first: float
    number: int = 0
    triggers: list[Trigger] = field(default_factory=list)


@dataclass
class _Look:
    """Requests since the last look: those that ended slow or failed, and those in flight."""

    ended: list[native.NamedRequest]
    under_way: list[native.NamedRequest]


class Conditions:
    """Checks the conditions of a flight recorder. A context manager.

    ``connections``: those of the traced mounts, with their paths. ``seconds``: after a recording,
    its condition is silent for so long; the time doubles with each recording that follows without a
    rest. ``warn``: called with triggers that got no recording. ``quiet``: seconds without a trigger
    that end a burst; ``longest``: a longer burst is recorded before its end.
    """

    quiet = longest = 0.0

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
        self.waits: Waits = {}
        # Requests in flight that have triggered a condition; since when many requests wait,
        # infinity once this has triggered.
        self._seen_of: set[tuple[Condition, Key]] = set()
        self._above: dict[tuple[Condition, int], float] = {}
        self._files = contextlib.ExitStack()
        self._directory: int | None = None

    def __enter__(self) -> Conditions:
        if any(isinstance(c, Waiting) for c in self._conditions):
            _, self._directory = self._files.enter_context(fusectl())
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
        """Return the cause for writing a recording now, if any.

        Call it several times a second. Raise Error if perf has exited.
        """
        seen, now = self._seen(), time.monotonic()
        for condition in self._conditions:
            if new := self._new(condition, seen):
                due = self._due.setdefault(condition, _Due(new[-1], now, now))
                due.last, due.seen = new[-1], now
                due.number += len(new)
                triggers = [trigger for cause in new for trigger in cause.triggers]
                due.triggers += triggers[: MOST - len(due.triggers)]
        under_way = {_key(request) for request in seen.under_way}
        self._seen_of = {(c, key) for c, key in self._seen_of if key in under_way}
        ready = [c for c in self._due if now >= sum(self.waits.get(c, (0.0, 0.0)))]
        if ready and (
            now - max(due.seen for due in self._due.values()) >= self.quiet
            or now - min(self._due[c].first for c in ready) >= self.longest
        ):
            return self.due
        for condition in [c for c, d in self._due.items() if d.seen < now - 2 * self._seconds]:
            self._warn(f"no recording, too soon after the last one: {self._text(condition, now)}")
            del self._due[condition]
        return None

    @property
    def due(self) -> Cause | None:
        """Return the triggers since the last recording, in the order of the conditions."""
        if not self._due:
            return None
        now = time.monotonic()
        texts = [self._text(c, now) for c in self._conditions if c in self._due]
        began = [due.last.began for due in self._due.values() if due.last.began is not None]
        triggers = [t for c in self._conditions if c in self._due for t in self._due[c].triggers]
        return Cause("; ".join(texts), min(began, default=None), tuple(triggers[:MOST]))

    def _text(self, condition: Condition, now: float) -> str:
        due = self._due[condition]
        age = now - due.seen
        others = f" ({due.number - 1:,} more before)" if due.number > 1 else ""
        return f"{condition.text}: {due.last.why}{f', {took(age)} ago' if age >= 1 else ''}{others}"

    def taken(self) -> None:
        """Note that a recording of the due triggers has been written."""
        now = time.monotonic()
        for condition in self._due:
            since, wait = self.waits.get(condition, (0.0, 0.0))
            again = wait and now - since < 2 * wait
            longer = min(2 * wait, max(LONGEST, self._seconds)) if again else self._seconds
            self.waits[condition] = now, longer
        self._due.clear()

    def _seen(self) -> _Look:
        if self._requests is None:
            return _Look([], [])
        self._requests.advance()
        slow = [c.least for c in self._conditions if isinstance(c, Slow)]
        under_way: list[native.NamedRequest] = []
        if slow:
            in_flight, _ = self._requests.requests.under_way(min(slow), OLDEST)
            under_way = [request for request, unsure in in_flight if not unsure]
        return _Look(list(self._requests.requests.lines()), under_way)

    def _new(self, condition: Condition, seen: _Look) -> list[Cause]:
        """Return new triggers of a condition, the newest last."""
        if isinstance(condition, Waiting):
            return self._waiting(condition)
        if isinstance(condition, Failed):
            return [
                self._cause(request, f"ended with {error_name(-request.error)}")
                for request in seen.ended
                if -request.error in condition.errors
            ]
        new = [
            (request, how)
            for how, requests in (("took", seen.ended), ("in flight for", seen.under_way))
            for request in requests
            if fnmatchcase(request.operation, condition.pattern)
            and request.duration > condition.least
            and (condition, _key(request)) not in self._seen_of
        ]
        self._seen_of |= {(condition, _key(request)) for request, _ in new}
        return [self._cause(request, f"{how} {duration(request.duration)}") for request, how in new]

    def _cause(self, request: native.NamedRequest, what: str) -> Cause:
        pid = f" (pid {request.pid})" if request.pid else ""
        who = f"{request.operation} of {request.comm or 'a process'}{pid}"
        error, marks = request.error, dict(request.marks)
        trigger = Trigger(
            path=self._connections.get(request.connection or 0, ""),
            operation=request.operation,
            pid=request.pid,
            tid=request.tid,
            comm=request.comm,
            seconds=request.duration / 1e9,
            in_flight="end" not in marks,
            error=error_name(-error) if error else "",
        )
        return Cause(f"{who} {what}", min(marks.values()), (trigger,))

    def _waiting(self, condition: Waiting) -> list[Cause]:
        assert self._directory is not None
        new = []
        for connection, path in self._connections.items():
            count = counter(self._directory, connection, "waiting") or 0
            if count <= condition.count:
                self._above.pop((condition, connection), None)
                continue
            since = self._above.setdefault((condition, connection), time.monotonic())
            if (time.monotonic() - since) * 1e9 >= condition.ns:
                self._above[condition, connection] = math.inf
                new.append(Cause(f"{plural(count, 'request')} on {path}", int(since * 1e9)))
        return new


def _key(request: native.NamedRequest) -> Key:
    return request.connection, request.unique, request.tid
