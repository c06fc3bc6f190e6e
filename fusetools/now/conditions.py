"""Whether a flight recorder's conditions are true at this moment.

A condition sets it off when it becomes true: a request that hangs for hours does so once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusetools.answers.requests import error_name
from fusetools.errors import Error
from fusetools.figures import duration, plural
from fusetools.now import machine
from fusetools.now.top import catalogue_of
from fusetools.plan.conditions import Condition, Failed, Slow, Waiting
from fusetools.plan.planner import ProbePlan
from fusetools.record.session import Recording
from fusetools.record.streaming import Streaming

OLDEST = 1024  # requests under way that are looked at
NEVER = (1 << 63) - 1  # ns that no request takes


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


@dataclass
class _Look:
    """What was seen since the last look: requests that ended and were slow or failed, and those
    that are under way."""

    ended: list[dict[str, Any]]
    under_way: list[dict[str, Any]]


class Conditions:
    """A context manager. ``connections``: of the traced mounts, with their paths."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        requests: Requests | None,
        connections: dict[int, str],
    ) -> None:
        self._conditions = conditions
        self._requests = requests
        self._connections = connections
        self._true: set[Condition] = set()
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

    def look(self) -> tuple[str, set[Condition]]:
        """Why a recording is to be written, "" for nothing; and what is true. To be called several
        times a second. Error: perf has ended."""
        seen = self._seen()
        true = {one: why for one in self._conditions if (why := self._why(one, seen))}
        self._true &= true.keys()
        new = [f"{one.text}: {why}" for one, why in true.items() if one not in self._true]
        return "; ".join(new), set(true)

    def taken(self, true: set[Condition]) -> None:
        """A recording has been written of what is true."""
        self._true |= true

    def _seen(self) -> _Look:
        if self._requests is None:
            return _Look([], [])
        self._requests.advance()
        slow = [one.least for one in self._conditions if isinstance(one, Slow)]
        under_way: list[dict[str, Any]] = []
        if slow:
            kept, _ = self._requests.requests.under_way(min(slow), OLDEST)
            under_way = [one for one, unsure in kept if not unsure]
        return _Look(list(self._requests.requests.lines()), under_way)

    def _why(self, one: Condition, seen: _Look) -> str:
        if isinstance(one, Waiting):
            return self._waiting(one)
        if isinstance(one, Failed):
            for request in seen.ended:
                if -request["error"] in one.errors:
                    return f"{_who(request)} ended with {error_name(-request['error'])}"
            return ""
        for request in seen.under_way:
            if request["operation"] in one.operations and request["duration"] > one.least:
                return f"{_who(request)} under way for {duration(request['duration'])}"
        for request in seen.ended:
            if request["operation"] in one.operations and request["duration"] > one.least:
                return f"{_who(request)} took {duration(request['duration'])}"
        return ""

    def _waiting(self, one: Waiting) -> str:
        assert self._directory is not None
        for connection, path in self._connections.items():
            count = machine.counter(self._directory, connection, "waiting") or 0
            if count <= one.count:
                self._above.pop((one, connection), None)
                continue
            since = self._above.setdefault((one, connection), time.monotonic())
            if (time.monotonic() - since) * 1e9 >= one.ns:
                return f"{plural(count, 'request')} on {path}"
        return ""


def _who(request: dict[str, Any]) -> str:
    pid = f" (pid {request['pid']})" if request["pid"] else ""
    return f"{request['operation']} of {request['comm'] or 'a process'}{pid}"
