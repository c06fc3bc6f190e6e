"""Timeline of one request."""

from __future__ import annotations

import bisect
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fusetools import core
from fusetools.answers import helpers
from fusetools.answers.catalogue import Probe
from fusetools.answers.filters import Filters
from fusetools.answers.requests import (
    Connections,
    Names,
    RequestQuery,
    Span,
    error_name,
    gather,
    guessed,
    meanwhile,
    on_connection,
    peer,
    request,
    signal_name,
    work_span,
)
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.results.show import Shown, TimelineEvent
from fusetools.session import NAMING

# Roles without a line: their events provide only names, or have another role that gets the line.
_SILENT_ROLES = {"name", "handle", "listed", "length", *NAMING}
# Lines for the events of io_uring.
_RING_ACTIONS = {
    "fetched": "has a request in its ring",
    "committed": "submits to its ring",
    "ring_wait": "waits for its ring",
}


def only(
    matches: Sequence[core.native.Kept], unique: int, names: Names, path: Path
) -> core.native.Kept:
    """Return the single request with a number. Error: there are several, or none."""
    if len(matches) == 1:
        return matches[0]
    file = shlex.quote(str(path))
    if not matches:
        raise Error(
            f"{path} has no request {unique}",
            "its numbers stand in what these commands print",
            f"fusetools slow -i {file}\nfusetools export -i {file} --format csv -o requests.csv",
        )
    mounts = list(dict.fromkeys(names.mount(fields["connection"]) for fields in matches))
    if len(mounts) > 1 and all(mounts):
        raise Error(
            f"{len(matches)} requests have the number {unique}",
            f"they are of {', '.join(mounts)}",
            f"fusetools show {unique} -i {file} --mount {shlex.quote(mounts[0])}",
        )
    times = ", ".join(str(min(fields["marks"].values(), default=0)) for fields in matches[:5])
    raise Error(
        f"{len(matches)} requests have the number {unique}",
        f"they begin at {times} ns on the recording's clock",
        f"fusetools show {unique} -i {file} --from TIME --to TIME",
    )


def spans(fields: core.native.Kept) -> tuple[Span | None, Span | None]:
    """Return the spans of the caller's and the daemon's thread during the request."""
    marks: dict[str, int] = fields["marks"]
    callers = ("sys_enter", "resumed", "kernel_enter", "begin")
    ends: tuple[str, ...] = ("end", "waking", "runs", "kernel_exit", "leaves", "sys_exit")
    daemons = ("daemon_runs", "sent", "read", "callback_enter")
    done = ("reply", "end", "callback_return")

    def span(tid: int | None, first: Sequence[str], last: Sequence[str]) -> Span | None:
        start = min((marks[name] for name in first if name in marks), default=None)
        end = max((marks[name] for name in last if name in marks), default=1 << 63)
        return None if tid is None or start is None else Span(tid, start, max(start, end))

    tid = fields["tid"]
    # The caller of an asynchronous request does not wait for it.
    ends = ends if fields["waits"] else ("begin",)
    return span(tid, callers, ends), span(fields["daemon_tid"], daemons, done)


def show(source: Source, unique: int, filters: Filters) -> Shown:
    """Return one request's timeline, by its number. Error: there is none, or several."""
    query = RequestQuery(source)
    answer, facts = query(core.native.numbered, filters, unique)
    fields = only(answer["kept"], unique, query.names, source.path)
    gathered = partial(gather, answer["threads"])
    caller, daemon = gathered(spans(fields))
    connected = query.connections(fields, answer["peers"])
    (chain,) = helpers.chains([work_span(fields)], [daemon], gathered, query.probes, [connected])
    first = min(fields["marks"].values(), default=0)
    tids = (fields["tid"], fields["daemon_tid"])
    lines: dict[tuple[int, int, int], list[str]] = {}
    for side, (tid, moments) in enumerate(zip(tids, (caller, daemon))):
        own = connected if side else Connections()
        thread = _Thread(fields, tid, query.probes, source.functions, query.names, own)
        for time, whose, cpu, kind, values, text in moments:
            line = thread.line(time, whose, cpu, kind, values, text)
            if line:
                # An event may concern both threads: one wakes the other.
                lines.setdefault((time, kind, whose), ["", ""])[side] = line
    rows = sorted(lines.items(), key=lambda item: item[0][0])
    story = tuple(TimelineEvent(time - first, *both) for (time, _, _), both in rows)
    did = meanwhile(fields, daemon, query.probes, connected)
    shown = helpers.with_helpers(request(fields, answer["first"], query.names, did), chain)
    return Shown(shown, story, guessed(query.probes), source.with_missing_detail(facts))


class _Thread:
    """Writer of the lines about one thread."""

    def __init__(
        self,
        fields: core.native.Kept,
        tid: int | None,
        probes: Sequence[Probe],
        functions: Sequence[tuple[int, str]],
        names: Names,
        connected: Connections,
    ) -> None:
        self.fields = fields
        self.tid = tid
        self.probes = probes
        self.functions = functions
        self.starts = [start for start, _ in functions]
        self.names = names
        self.connected = connected
        # These probes of functions already have a line as a point of the request.
        self.points = {p.event for p in probes if p.role in ("begin", "sent", "end")}
        self.running: bool | None = None
        self.name = ""

    def line(
        self,
        time: int,
        whose: int,
        cpu: int,
        kind: int,
        values: Sequence[int | None],
        text: str | None,
    ) -> str:
        """Return a moment's line; "" if it adds nothing new."""
        if kind == -1:
            out, preempted = values[:2]
            return self._switch(not out, "loses the CPU" if preempted else "sleeps", cpu)
        if kind == -2:
            self.name = f'"{text}" in inode {values[0]}' if text else ""
            return ""
        probe = self.probes[kind]
        role = probe.role
        if role in _SILENT_ROLES or (role == "entry" and probe.event in self.points):
            return ""
        if role == "switch":
            before, state, _, _ = values
            if before == self.tid:
                return self._switch(False, "sleeps" if state else "loses the CPU", cpu)
            return self._switch(True, "", cpu)
        if role == "waking":
            if (values[1] or 0) & helpers.INTERRUPT:
                # The task that runs meanwhile has nothing to do with it.
                by_timer = "is woken by an interrupt (a timer or a device)"
                return by_timer if values[0] == self.tid else ""
            if whose == self.tid:
                return f"wakes {self._task(values[0])}"
            return f"is woken by {self._task(whose)}" if whose else "is woken"
        if role == "signal":
            name = signal_name(values[0] or 0)
            return f"is sent {name}" if values[1] == self.tid else ""
        if role == "connect":
            return f"connects to {peer(values) or 'a peer that is not known'}"
        if role in _RING_ACTIONS:
            return _RING_ACTIONS[role]
        if role in ("sys_enter", "sys_exit"):
            if text is None:
                return ""
            if role == "sys_exit":
                return f"{text}() = {_result(values[1])}"
            return f"{text}({on_connection(time, text, values, self.connected)})"
        if role in ("begin", "sent", "end"):
            return self._request(role, time, values)
        if role in ("graph_entry", "graph_exit"):
            return self._function(values[0]) + ("()" if role == "graph_entry" else " returns")
        if role == "inode":
            return f"answers inode {values[1]}" if values[1] else "answers: no such file"
        if role == "return":
            return f"{probe.function} returns"
        if probe.layer == "kernel":
            return f"{probe.function}()"
        return f"{probe.function}({self._arguments(values)})"

    def _switch(self, runs: bool, how: str, cpu: int) -> str:
        # Two kinds of events may report the same switch.
        if self.running is runs:
            return ""
        self.running = runs
        if not runs:
            return how
        return f"runs on CPU {cpu}" if cpu != 0xFFFFFFFF else "runs"

    def _task(self, tid: int | None) -> str:
        if tid == self.fields["tid"]:
            return f"{self.fields['comm']} {tid}".strip()
        if tid == self.fields["daemon_tid"]:
            return f"{self.names.daemon(self.fields['daemon_pid']) or 'daemon'} {tid}"
        return f"thread {tid}"

    def _request(self, role: str, time: int, values: Sequence[int | None]) -> str:
        mark = {"begin": "begin", "sent": "sent", "end": "end"}[role]
        own = self.fields["marks"].get(mark) == time
        if role == "sent" and values[2] == 0:
            return "copies the answer" if own or self._own(values) else ""
        which = self.fields["operation"] if own or self._own(values) else f"request {values[0]}"
        if role == "begin":
            return f"{which} is queued"
        if role == "sent":
            return f"{which} is copied to the daemon"
        number = values[2] or 0
        error = error_name(-(number - (1 << 32) if number >> 31 else number))
        return f"{which} ends" + (f" with {error}" if error else "")

    def _own(self, values: Sequence[int | None]) -> bool:
        return bool(values[0] == self.fields["unique"])

    def _arguments(self, values: Sequence[int | None]) -> str:
        unique, inode, size, offset = values
        other = "" if unique in (None, self.fields["unique"]) else f"of request {unique}"
        name, self.name = self.name, ""
        amount = "" if size is None else f"{size} bytes"
        where = "" if offset is None else f"at {offset}"
        named = name or ("" if inode is None else f"inode {inode}")
        return ", ".join(part for part in (named, amount, where, other) if part)

    def _function(self, address: int | None) -> str:
        at = bisect.bisect_right(self.starts, address or 0) - 1
        return self.functions[at][1] if at >= 0 else f"{address:#x}"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _result(value: int | None) -> str:
    if value is None:
        return "?"
    signed = _signed(value)
    return error_name(-signed) if -4096 < signed < 0 else str(signed)
