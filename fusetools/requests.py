"""Single requests: the slowest, one request's story, errors, the queue, and all into a file.

From the core's answers to the types of fusetools.model.
"""

from __future__ import annotations

import bisect
import codecs
import errno
import ipaddress
import json
import os
import shlex
import shutil
import sys
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from fusetools.errors import Error
from fusetools.model import (
    Errors,
    Exported,
    Facts,
    Meanwhile,
    Moment,
    MountQueue,
    OperationErrors,
    Queue,
    QueuePart,
    Request,
    Shown,
    Slowest,
)
from fusetools.output import Output, by_descriptor
from fusetools.recording import OPERATIONS, Probe
from fusetools.stages import parts_of
from fusetools.stories import needed

# What the kernel keeps for itself (include/linux/errno.h).
_KERNELS_OWN = {512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 524: "ENOTSUPP"}

# Whom a daemon connects to.
CONNECT = "sock:inet_sock_set_state"

# Parts of the time in which the queue is drawn.
PARTS = 60

# struct fuse_out_header, include/uapi/linux/fuse.h
_OUT_HEADER = 16


class Names(NamedTuple):
    """Of what numbers stand for: mount points by connection, daemons' names by process."""

    mounts: dict[int, str]
    daemons: dict[int, str]


class Questions(NamedTuple):
    """Asks the core: ask(question, filters, …) gives its answer and the facts of the recording."""

    ask: Callable[..., tuple[dict[str, Any], Facts]]
    probes: list[Probe]
    names: Names

    def __call__(self, question: str, *more: Any) -> tuple[dict[str, Any], Facts]:
        return self.ask(question, *more)


class Span(NamedTuple):
    """A thread from a time to another, on the recording's clock."""

    tid: int
    start: int
    end: int


def catalogue(probes: Sequence[Probe], events: Sequence[str]) -> list[Probe]:
    """What tells requests' stories and the names of files."""
    found = needed(probes, events)
    for probe in probes:
        if probe.layer == "daemon" and probe.role == "entry":
            found.append(probe._replace(role="name"))
        elif probe.role == "reply" and probe.function in ("fuse_reply_entry", "fuse_reply_create"):
            found.append(probe._replace(role="inode"))
    if CONNECT in events:
        found.append(Probe(CONNECT, "syscall", "", "", "connect"))
    return found


def operations(patterns: Sequence[str]) -> list[str]:
    """The FUSE operations that a shell pattern matches; all if there are no patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in OPERATIONS):
            raise Error(
                f"there is no operation {pattern}",
                f"there are {', '.join(sorted(OPERATIONS))}",
                "fusetools count --layer request",
            )
    return [name for name in sorted(OPERATIONS) if any(fnmatchcase(name, p) for p in patterns)]


def error_name(number: int) -> str:
    """Of an errno, e.g. ENOENT; "" for 0."""
    if not number:
        return ""
    return errno.errorcode.get(number) or _KERNELS_OWN.get(number) or f"errno {number}"


# slow


def at_work(kept: dict[str, Any]) -> Span | None:
    """The daemon's thread while it has the request in hand, up to its reply."""
    marks, tid = kept["marks"], kept["daemon_tid"]
    start = marks.get("callback_enter", marks.get("read"))
    end = marks.get("reply", marks.get("end", marks.get("callback_return", kept["until"])))
    if tid is None or start is None or kept["handed"]:
        return None
    return Span(tid, start, max(start, end if end is not None else 1 << 63))


def slowest(
    found: dict[str, Any],
    moments: Sequence[list[tuple[Any, ...]]],
    probes: Sequence[Probe],
    names: Names,
    facts: Facts,
) -> Slowest:
    """``moments``: for each request what its daemon's thread did meanwhile."""
    requests = (
        request(one, found["first"], names, _meanwhile(one, did, probes))
        for one, did in zip(found["kept"], moments)
    )
    return Slowest(tuple(requests), _guessed(probes), facts)


def _guessed(probes: Sequence[Probe]) -> bool:
    """Names of files are told by what callers asked for next."""
    return not any(probe.role == "inode" for probe in probes)


def request(
    kept: dict[str, Any], first: int, names: Names, meanwhile: Meanwhile | None = None
) -> Request:
    marks = {name: time - first for name, time in kept["marks"].items()}
    start = marks.get("begin", min(marks.values(), default=0))
    path, whole = kept["path"] or (None, False)
    reply = kept["reply_len"]
    return Request(
        operation=kept["operation"],
        unique=kept["unique"],
        mount=names.mounts.get(kept["connection"], ""),
        fate=kept["fate"],
        until=None if kept["until"] is None else kept["until"] - first,
        handed=kept["handed"],
        start=start,
        duration=kept["duration"],
        error=error_name(-kept["error"]),
        waits=kept["waits"],
        comm=kept["comm"],
        pid=kept["pid"],
        tid=kept["tid"],
        syscall=kept["syscall"] or "",
        daemon_comm=names.daemons.get(kept["daemon_pid"], ""),
        daemon_pid=kept["daemon_pid"],
        daemon_tid=kept["daemon_tid"],
        path=path,
        whole=whole,
        name=kept["name"],
        inode=kept["inode"],
        size=kept["size"],
        offset=kept["offset"],
        answered=reply - _OUT_HEADER if reply is not None and reply >= _OUT_HEADER else None,
        negative=kept["operation"] == "lookup" and kept["answer"] == 0 and not kept["error"],
        marks=marks,
        stages=tuple((name, ns) for name, ns, _ in kept["stages"]),
        parts=tuple(_parts(*stage) for stage in kept["stages"]),
        meanwhile=meanwhile,
    )


def _parts(stage: str, ns: int, told: Sequence[int] | None) -> dict[str, int]:
    if told is None:
        return {}
    whole = [*told]
    left = ns
    for at, part in enumerate(whole):
        whole[at] = min(part, left)
        left -= whole[at]
    return parts_of(stage, whole, left)


def _meanwhile(
    kept: dict[str, Any], moments: Iterable[tuple[Any, ...]], probes: Sequence[Probe]
) -> Meanwhile | None:
    span = at_work(kept)
    if span is None:
        return None
    blocked, runnable, elsewhere = (kept[name] for name in ("blocked", "runnable", "elsewhere"))
    on_cpu = None
    marks = kept["marks"]
    if blocked is not None:
        idle = blocked + runnable + (elsewhere or 0)
        end = min(marks.get("reply", span.end), kept["until"] or span.end)
        on_cpu = max(end - span.start - idle, 0)
    calls: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    entered: tuple[str, int] | None = None
    last = span.start
    for time, tid, _, kind, _, syscall in moments:
        if not span.start <= time <= span.end:
            continue
        last = max(last, time)
        if tid != span.tid or kind < 0 or syscall is None:
            continue
        if probes[kind].role == "sys_enter":
            entered = (syscall, time)
        elif entered is not None and entered[0] == syscall:
            calls[syscall][0] += 1
            calls[syscall][1] += time - entered[1]
            entered = None
    if entered is not None and entered[1] != span.end:  # else it is the one that answers
        calls[entered[0]][0] += 1
        calls[entered[0]][1] += min(span.end, last) - entered[1]
    rows = sorted(((name, n, ns) for name, (n, ns) in calls.items()), key=lambda row: -row[2])
    return Meanwhile(on_cpu, runnable, blocked, elsewhere, kept["unsplit"], tuple(rows))


def peer(values: Sequence[int | None]) -> str | None:
    """Whom a connection is to, out of an event's values: "192.0.2.1:3128", "[2001:db8::1]:80"."""
    port, first, last = values[:3]
    if port is None or first is None or last is None:
        return None
    halves = (half.to_bytes(8, "little") for half in (first, last))
    address = ipaddress.IPv6Address(b"".join(halves))
    return f"{address.ipv4_mapped}:{port}" if address.ipv4_mapped else f"[{address}]:{port}"


# show


def only(found: Sequence[dict[str, Any]], unique: int, names: Names, path: Path) -> dict[str, Any]:
    """The only one of a number; Error if there are several, or none."""
    if len(found) == 1:
        return found[0]
    file = shlex.quote(str(path))
    if not found:
        raise Error(
            f"{path} has no request {unique}",
            "its numbers stand in what these commands print",
            f"fusetools slow -i {file}\nfusetools export -i {file} --to csv -o requests.csv",
        )
    mounts = list(dict.fromkeys(names.mounts.get(one["connection"], "") for one in found))
    if len(mounts) > 1 and all(mounts):
        raise Error(
            f"{len(found)} requests have the number {unique}",
            f"they are of {', '.join(mounts)}",
            f"fusetools show {unique} -i {file} --mount {shlex.quote(mounts[0])}",
        )
    times = ", ".join(str(min(one["marks"].values(), default=0)) for one in found[:5])
    raise Error(
        f"{len(found)} requests have the number {unique}",
        f"they begin at {times} ns on the recording's clock",
        f"fusetools show {unique} -i {file} --from TIME --to TIME",
    )


def spans(kept: dict[str, Any]) -> tuple[Span | None, Span | None]:
    """The caller's and the daemon's thread while they are about the request."""
    marks: dict[str, int] = kept["marks"]
    callers = ("sys_enter", "resumed", "kernel_enter", "begin")
    ends: tuple[str, ...] = ("end", "waking", "runs", "kernel_exit", "sys_exit")
    daemons = ("daemon_runs", "sent", "read", "callback_enter")
    done = ("reply", "end", "callback_return")

    def span(tid: int | None, first: Sequence[str], last: Sequence[str]) -> Span | None:
        start = min((marks[name] for name in first if name in marks), default=None)
        end = max((marks[name] for name in last if name in marks), default=1 << 63)
        return None if tid is None or start is None else Span(tid, start, max(start, end))

    tid = kept["tid"]
    # In the background the caller goes on to other things.
    ends = ends if kept["waits"] else ("begin",)
    return span(tid, callers, ends), span(kept["daemon_tid"], daemons, done)


def shown(
    kept: dict[str, Any],
    sides: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]],
    probes: Sequence[Probe],
    functions: Sequence[tuple[int, str]],
    start: int,
    names: Names,
    facts: Facts,
) -> Shown:
    """``sides``: what the caller's and the daemon's thread did meanwhile; ``start``: the
    recording's first event, ns on its clock."""
    first = min(kept["marks"].values(), default=0)
    tids = (kept["tid"], kept["daemon_tid"])
    said: dict[tuple[int, int, int], list[str]] = {}
    for side, (tid, moments) in enumerate(zip(tids, sides)):
        teller = _Teller(kept, tid, probes, functions, names)
        for time, whose, cpu, kind, values, text in moments:
            line = teller.tell(time, whose, cpu, kind, values, text)
            if line:
                # An event may be about both: who is woken up, and by whom.
                said.setdefault((time, kind, whose), ["", ""])[side] = line
    rows = sorted(said.items(), key=lambda item: item[0][0])
    told = tuple(Moment(time - first, *both) for (time, _, _), both in rows)
    meanwhile = _meanwhile(kept, sides[1], probes)
    return Shown(request(kept, start, names, meanwhile), told, _guessed(probes), facts)


class _Teller:
    """Says what one thread did."""

    def __init__(
        self,
        kept: dict[str, Any],
        tid: int,
        probes: Sequence[Probe],
        functions: Sequence[tuple[int, str]],
        names: Names,
    ) -> None:
        self.kept = kept
        self.tid = tid
        self.probes = probes
        self.functions = functions
        self.starts = [start for start, _ in functions]
        self.names = names
        # Probes that tell a request's points are functions, too.
        self.points = {p.event for p in probes if p.role in ("begin", "sent", "end")}
        self.running: bool | None = None
        self.name = ""

    def tell(
        self,
        time: int,
        whose: int,
        cpu: int,
        kind: int,
        values: Sequence[int | None],
        text: str | None,
    ) -> str:
        """ "" for what says nothing new."""
        if kind == -1:
            out, preempted = values[:2]
            return self._switch(not out, "loses the CPU" if preempted else "sleeps", cpu)
        if kind == -2:
            self.name = f'"{text}" in inode {values[0]}' if text else ""
            return ""
        probe = self.probes[kind]
        role = probe.role
        if role in ("name", "length") or (role == "entry" and probe.event in self.points):
            return ""
        if role == "switch":
            before, state, _, _ = values
            if before == self.tid:
                # TASK_INTERRUPTIBLE, TASK_UNINTERRUPTIBLE
                return self._switch(False, "sleeps" if (state or 0) & 3 else "loses the CPU", cpu)
            return self._switch(True, "", cpu)
        if role == "waking":
            if whose == self.tid:
                return f"wakes {self._task(values[0])}"
            return f"is woken by {self._task(whose)}" if whose else "is woken"
        if role == "connect":
            return f"connects to {peer(values) or 'a peer that is not known'}"
        if role in ("sys_enter", "sys_exit"):
            if text is None:
                return ""
            return f"{text}()" if role == "sys_enter" else f"{text}() = {_result(values[1])}"
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
        # Two kinds of events may tell the same.
        if self.running is runs:
            return ""
        self.running = runs
        if not runs:
            return how
        return f"runs on CPU {cpu}" if cpu != 0xFFFFFFFF else "runs"

    def _task(self, tid: int | None) -> str:
        if tid == self.kept["tid"]:
            return f"{self.kept['comm']} {tid}".strip()
        if tid == self.kept["daemon_tid"]:
            return f"{self.names.daemons.get(self.kept['daemon_pid']) or 'daemon'} {tid}"
        return f"thread {tid}"

    def _request(self, role: str, time: int, values: Sequence[int | None]) -> str:
        mark = {"begin": "begin", "sent": "sent", "end": "end"}[role]
        own = self.kept["marks"].get(mark) == time
        if role == "sent" and values[2] == 0:
            return "copies the answer" if own or self._own(values) else ""
        which = self.kept["operation"] if own or self._own(values) else f"request {values[0]}"
        if role == "begin":
            return f"{which} is queued"
        if role == "sent":
            return f"{which} is copied to the daemon"
        error = error_name(-_signed(values[2] or 0))
        return f"{which} ends" + (f" with {error}" if error else "")

    def _own(self, values: Sequence[int | None]) -> bool:
        return bool(values[0] == self.kept["unique"])

    def _arguments(self, values: Sequence[int | None]) -> str:
        unique, inode, size, offset = values
        other = "" if unique in (None, self.kept["unique"]) else f"of request {unique}"
        name, self.name = self.name, ""
        asked = "" if size is None else f"{size} bytes"
        where = "" if offset is None else f"at {offset}"
        named = name or ("" if inode is None else f"inode {inode}")
        return ", ".join(part for part in (named, asked, where, other) if part)

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


# errors


def errors(
    found: dict[str, Any], patterns: Sequence[str], probes: Sequence[Probe], facts: Facts
) -> Errors:
    told = not _guessed(probes)
    rows = []
    for operation, answered, negative, counts, unanswered in found["operations"]:
        if patterns and not any(fnmatchcase(operation, pattern) for pattern in patterns):
            continue
        by_name = sorted(((error_name(number), n) for number, n in counts), key=lambda e: -e[1])
        known = negative if operation == "lookup" and told else None
        rows.append(OperationErrors(operation, answered, tuple(by_name), known, tuple(unanswered)))
    rows.sort(
        key=lambda row: (
            -(row.failed + (row.negative or 0) + sum(n for _, n in row.unanswered)),
            -row.requests,
            row.operation,
        )
    )
    gone = sorted(found["disconnected"], key=lambda row: (-row[1], row[0]))
    return Errors(tuple(rows), facts, tuple((name, calls) for name, calls in gone))


# queue


def queue(found: dict[str, Any], names: Names, facts: Facts) -> Queue:
    first = found["first"]
    mounts = []
    for one in found["mounts"]:
        if not one["parts"] and not one["unread"]:
            continue
        times, queued, busy = (
            _column(one[name], kind)
            for name, kind in (("time", "Q"), ("queued", "I"), ("busy", "I"))
        )
        mounts.append(
            MountQueue(
                mount=_mount(names, one["connection"]),
                requests=one["requests"],
                threads=one["threads"],
                start=times[0] - first if times else 0,
                end=times[-1] - first if times else 0,
                total=one["total"],
                waited=one["waited"],
                short=one["short"],
                whole=QueuePart(*one["whole"][0]) if one["whole"] else QueuePart(0, 0, 0, 0),
                unanswered=one["unanswered"],
                unread=one["unread"],
                handed=one["handed"],
                runnable=one["runnable"],
                parts=tuple(QueuePart(*part) for part in one["parts"]),
                levels=_Levels(times, queued, busy, first),
            )
        )
    return Queue(tuple(mounts), facts)


def _mount(names: Names, connection: int | None) -> str:
    if connection is None:
        return "all mounts"
    return names.mounts.get(connection) or f"connection {connection}"


class _Levels:
    """Millions of them: made when they are asked for."""

    def __init__(self, times: array[int], queued: array[int], busy: array[int], first: int) -> None:
        self.columns = (times, queued, busy)
        self.first = first

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return ((time - self.first, q, b) for time, q, b in zip(*self.columns))


def _column(raw: bytes, kind: str) -> array[int]:
    values = array(kind)
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


# export


def export(asked: Questions, path: Path, form: str, filters: Any) -> Exported:
    """A file takes its place when it is whole; on an error nothing is left of it."""

    def rows(descriptor: int) -> tuple[dict[str, Any], Facts]:
        found, facts = asked("export", filters, str(by_descriptor(descriptor)), form)
        os.lseek(descriptor, 0, os.SEEK_END)
        with open(descriptor, "w", encoding="ascii", closefd=False) as file:
            file.write(_end(found, form, asked.names, facts))
        return found, facts

    with Output(str(path)) as target:
        if not target.printed:
            with target.part() as descriptor:
                found, facts = rows(descriptor)
        else:
            with tempfile.TemporaryFile() as file:
                found, facts = rows(file.fileno())
                file.seek(0)
                shutil.copyfileobj(codecs.getreader("utf-8")(file), sys.stdout)
    return Exported(str(path), found["rows"], facts)


def _end(found: dict[str, Any], form: str, names: Names, facts: Facts) -> str:
    """What follows the last row."""
    if form == "csv":
        return ""
    from fusetools.render import json as form_of

    if form == "json":
        mounts = {str(connection): path for connection, path in names.mounts.items()}
        rest = {"first_ns": found["first"], "mounts": mounts, **form_of.facts(facts)}
        rest["counts"] = rest.pop("requests")
    else:
        rest = {"displayTimeUnit": "ns", "otherData": {"recording": facts.name}}
    events = trace_end(found["servants"], names) if form == "perfetto" else ""
    return f"{events}\n], {json.dumps(rest)[1:]}\n"


def trace_end(servants: Iterable[tuple[int, int]], names: Names) -> str:
    """What follows the last event of a trace: the daemons' names, the end of the array."""
    said = []
    for pid in sorted({pid for pid, _ in servants}):
        name = {"name": names.daemons.get(pid) or "daemon"}
        said.append({"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": name})
        order = {"sort_index": 1}
        said.append(
            {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": pid, "args": order}
        )
        said += [
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": name}
            for one, tid in servants
            if one == pid
        ]
    return "".join(",\n" + json.dumps(event) for event in said)
