"""Facts that a recording holds about itself: record/ writes them, answers/ reads them.

A recording is an untrusted file: each value read from it is checked, and invalid ones are dropped.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fusetools.names import LAYERS, STACK_BYTES
from fusetools.printable import printable
from fusetools.reasons import Code, Reason, Value

Row = dict[str, object]
FORMAT = 2
READ = (1, FORMAT)  # format 1 has sentences instead of reasons
LONGEST = 1e10  # maximum length of a recording in seconds
MOST_OPENED = 1 << 12  # descriptors of callers
MOST_PROCESSES = 1 << 13  # noted while recording
MOST_PATHS = 64  # of a mount
BYTES = 16 << 20  # write::SESSION_MAX in the core
# Roles of the kernel's events that show file names. Each covers some operations only.
NAMING = ("asked", "about", "sized", "answered", "forgotten")
# Roles of the recording's events: their meaning to the analysis.
ROLES = (
    *NAMING,
    "entry",
    "return",
    "graph_entry",
    "graph_exit",
    "begin",
    "sent",
    "end",
    "reply",
    "inode",
    "listed",
    "taken",
    "sys_enter",
    "sys_exit",
    "switch",
    "waking",
    "length",
)


@dataclass(frozen=True)
class Host:
    """The recorded machine and the tools' versions. None: unknown."""

    kernel: str | None = None
    arch: str | None = None
    cpus: int | None = None
    perf: str | None = None
    trace_cmd: str | None = None


@dataclass(frozen=True)
class TracedMount:
    """A traced mount. ``connection``: its number, None if unknown; ``fs``: the probe set;
    ``also``: other paths on which the file system, or a part of it, is mounted;
    ``limits``: by name, as in host/limits.py;
    ``servers``: further processes that had the connection open; ``program`` and ``library``: file
    names of the daemon's program and of its libfuse; ``options``: its options about threads;
    ``parses``: it takes libfuse's own options; ``priority``: "nice 19", "SCHED_IDLE" or
    "SCHED_BATCH" if its daemon yields to others on a CPU, else ""; ``weighed_by``: what sets the
    daemon's share of a busy CPU, "cgroup", "autogroup" or "nice"; ``follower``: the process that
    answers on the path since the daemon ended."""

    path: str
    connection: int | None = None
    fstype: str = ""
    source: str = ""
    daemon_pid: int | None = None
    comm: str = ""
    fs: str | None = None
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    servers: tuple[int, ...] = ()
    program: str = ""
    library: str = ""
    options: tuple[str, ...] = ()
    parses: bool = False
    priority: str = ""
    weighed_by: str = ""
    also: tuple[str, ...] = ()
    follower: int | None = None


@dataclass(frozen=True)
class RecordedProbe:
    """An event that the recording made. ``role``: one of ROLES."""

    event: str
    layer: str
    function: str
    operation: str
    role: str
    address: int | None = None


@dataclass(frozen=True)
class Throttled:
    """CPU throttling of a cgroup while recording: ``times`` periods, ``ns`` in total.

    ``whose``: "daemon" or "workload".
    """

    cgroup: str
    whose: str
    times: int
    ns: int


@dataclass(frozen=True)
class Peer:
    """A connection of process ``pid`` by descriptor ``fd``, open during the whole recording.

    ``address``: the peer's, e.g. "192.0.2.1:3128" or "[2001:db8::1]:80"."""

    pid: int
    fd: int
    address: str


@dataclass(frozen=True)
class Ended:
    """A daemon that ended. ``status``: as of waitpid(2), None if unknown; ``oom_kills``: number of
    processes of the host that the kernel ended meanwhile because memory was used up."""

    pid: int
    status: int | None = None
    oom_kills: int = 0


@dataclass(frozen=True)
class File:
    """A file of process ``pid``, a daemon's, by descriptor ``fd``, open during the whole recording.

    ``mount``: where its file system is mounted; ``source``: the device."""

    pid: int
    fd: int
    path: str
    mount: str
    fstype: str
    source: str

    @property
    def disk(self) -> str:
        """The file system, e.g. "/data (ext4, /dev/vdb)"."""
        return f"{self.mount} ({self.fstype}, {self.source})"

    def __str__(self) -> str:
        return f"{self.path} on {self.disk}"


@dataclass(frozen=True)
class Opened:
    """A descriptor of a caller when the recording began: ``fd`` of process ``pid`` was on the FUSE
    mount of this connection."""

    pid: int
    fd: int
    connection: int


@dataclass(frozen=True)
class Process:
    """A process that ran during the recording; "": unknown.

    ``command``: its command line, and ``comm``: its name at that time, "" if that was at the end;
    ``job``: the batch job, e.g. "SLURM 4711", "" also if it is in none."""

    pid: int
    comm: str = ""
    command: str = ""
    user: str = ""
    cgroup: str = ""
    job: str = ""


@dataclass(frozen=True)
class Flight:
    """A snapshot of the flight recorder, written because of ``why``.

    ``wanted``: requested length in seconds; the buffers may have held less."""

    wanted: float
    why: str


@dataclass(frozen=True)
class Took:
    """Overhead: ``ns`` of CPU time that recording took from the recorded processes.

    ``least``: this is a lower bound. ``requests``: number of requests that they made."""

    ns: int
    least: bool
    requests: int


@dataclass(frozen=True, eq=False, repr=False)
class Session:
    """All facts of a recording.

    ``seconds``: its length; ``missing``: facts that could not be recorded; ``stack_bytes``: bytes
    copied of a stack; ``descendants``: PIDs, of a workload that ran before the recording began;
    ``recorders``: PIDs of the programs that recorded;
    ``misses``: calls missed per probe event; ``lost``: events lost per recorder; ``stacks``:
    numbers of switches with a stack of their own, with a similar switch's, and without one.
    """

    version: str = ""
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    call_graph: str = ""
    stack_bytes: int = STACK_BYTES
    detail: str = "stacks"
    started: str = ""
    seconds: float | None = None
    exit_status: int | None = None
    clock: str = ""
    host: Host = Host()
    workload_pid: int | None = None
    descendants: tuple[int, ...] = ()
    recorders: tuple[int, ...] = ()
    mounts: tuple[TracedMount, ...] = ()
    probes: tuple[RecordedProbe, ...] = ()
    missing: tuple[Reason, ...] = ()
    misses: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    probe_cost_ns: int | None = None
    pair_cost_ns: int | None = None
    event_cost_ns: int | None = None
    took: Took | None = None
    stacks: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    throttled: tuple[Throttled, ...] = ()
    peers: tuple[Peer, ...] = ()
    ends: tuple[Ended, ...] = ()
    files: tuple[File, ...] = ()
    opened: tuple[Opened, ...] = ()
    flight: Flight | None = None
    processes: tuple[Process, ...] = ()
    made_by_fusetools: bool = True

    def __repr__(self) -> str:
        command = printable(" ".join(self.command))[:30] or "no workload"
        return f"<Session of {self.started or 'an unknown time'}: {command}>"

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that the recording stores."""
        return {
            "format": FORMAT,
            "fusetools": self.version,
            "command": list(self.command),
            "arguments": list(self.arguments),
            "call_graph": self.call_graph,
            "stack_bytes": self.stack_bytes,
            "detail": self.detail,
            "started": self.started,
            "seconds": self.seconds,
            "exit_status": self.exit_status,
            "clock": self.clock,
            "host": dict(vars(self.host)),
            "workload_pid": self.workload_pid,
            "descendants": list(self.descendants),
            "recorders": list(self.recorders),
            "mounts": [{**vars(mount), "limits": dict(mount.limits)} for mount in self.mounts],
            "probes": [dict(vars(probe)) for probe in self.probes],
            "missing": [dict(vars(reason)) for reason in self.missing],
            "misses": dict(self.misses),
            "lost": dict(self.lost),
            "probe_cost_ns": self.probe_cost_ns,
            "pair_cost_ns": self.pair_cost_ns,
            "event_cost_ns": self.event_cost_ns,
            "took": dict(vars(self.took)) if self.took else None,
            "stacks": list(self.stacks),
            "warnings": list(self.warnings),
            "cgroups": [
                {
                    "cgroup": row.cgroup,
                    "whose": row.whose,
                    "nr_throttled": row.times,
                    "throttled_ns": row.ns,
                }
                for row in self.throttled
            ],
            "peers": [dict(vars(peer)) for peer in self.peers],
            "ends": [dict(vars(end)) for end in self.ends],
            "files": [dict(vars(file)) for file in self.files],
            "opened": [dict(vars(file)) for file in self.opened],
            "flight": dict(vars(self.flight)) if self.flight else None,
            "processes": [dict(vars(process)) for process in self.processes],
        }


def encoded(session: Session, room: int = BYTES) -> str:
    """Encode a session as JSON. Above ``room`` bytes, shorten its arguments and command."""
    data = session.to_json()
    text = json.dumps(data)
    if len(text) <= room:
        return text
    for key in ("arguments", "command"):
        words: tuple[str, ...] = getattr(session, key)
        data[key] = [word[:200] for word in (*words[:20], "…")]
    return json.dumps(data)


def read(text: str | None) -> tuple[Session, list[str]]:
    """Return the session in a recording's JSON text (None: it has none), and warnings."""
    if text is None:
        return Session(made_by_fusetools=False), []
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        why = "the recording's own facts cannot be read: names are guessed"
        return Session(made_by_fusetools=False), [why]
    warnings = []
    if data.get("format") not in READ:
        warnings.append("made by another version of fusetools: some facts may be missing")
    probes = []
    for row in _dicts(data.get("probes")):
        probe = _probe(row)
        if probe is None:
            warnings.append("a probe in the recording's own facts makes no sense")
        else:
            probes.append(probe)
    host = _dict(data.get("host"))
    seconds = data.get("seconds")
    if not isinstance(seconds, (int, float)) or not 0 < seconds < LONGEST:
        seconds = None
    detail = data.get("detail")
    return (
        Session(
            version=_text(data.get("fusetools")),
            command=tuple(map(str, _list(data.get("command")))),
            arguments=tuple(map(str, _list(data.get("arguments")))),
            call_graph=_text(data.get("call_graph")),
            stack_bytes=natural(data.get("stack_bytes")) or STACK_BYTES,
            detail=detail if detail in ("latency", "stages") else "stacks",
            started=_text(data.get("started")),
            seconds=seconds,
            exit_status=natural(data.get("exit_status")),
            clock=_text(data.get("clock")),
            host=Host(
                kernel=_text(host.get("kernel")) or None,
                arch=_text(host.get("arch")) or None,
                cpus=natural(host.get("cpus")),
                perf=_text(host.get("perf")) or None,
                trace_cmd=_text(host.get("trace_cmd")) or None,
            ),
            workload_pid=_pid(data.get("workload_pid")),
            descendants=_pids(data.get("descendants")),
            recorders=_pids(data.get("recorders")),
            mounts=tuple(_mount(row) for row in _dicts(data.get("mounts"))),
            probes=tuple(probes),
            missing=tuple(map(reason, _dicts(data.get("missing") or data.get("unavailable")))),
            misses=_counters(data.get("misses")),
            lost=_counters(data.get("lost")),
            probe_cost_ns=natural(data.get("probe_cost_ns")),
            pair_cost_ns=natural(data.get("pair_cost_ns")),
            event_cost_ns=natural(data.get("event_cost_ns")),
            took=_took(_dict(data.get("took"))),
            stacks=tuple(natural(n) or 0 for n in _list(data.get("stacks"))),
            warnings=tuple(w for w in _list(data.get("warnings")) if isinstance(w, str)),
            throttled=tuple(
                Throttled(
                    str(row.get("cgroup")),
                    str(row.get("whose")),
                    times,
                    natural(row.get("throttled_ns")) or 0,
                )
                for row in _dicts(data.get("cgroups"))
                if (times := natural(row.get("nr_throttled")))
            ),
            ends=tuple(
                Ended(pid, natural(row.get("status")), natural(row.get("oom_kills")) or 0)
                for row in _dicts(data.get("ends"))
                if (pid := _pid(row.get("pid"))) is not None
            ),
            peers=tuple(peer for row in _dicts(data.get("peers")) if (peer := _peer(row))),
            files=tuple(
                file for row in _dicts(data.get("files"))[:MOST_OPENED] if (file := _file(row))
            ),
            opened=tuple(
                Opened(pid, fd, connection)
                for row in _dicts(data.get("opened"))[:MOST_OPENED]
                if (pid := _pid(row.get("pid"))) is not None
                and (fd := natural(row.get("fd"))) is not None
                and (connection := natural(row.get("connection"))) is not None
            ),
            flight=_flight(_dict(data.get("flight"))),
            processes=tuple(
                Process(
                    pid,
                    *(
                        _text(row.get(name))
                        for name in ("comm", "command", "user", "cgroup", "job")
                    ),
                )
                for row in _dicts(data.get("processes"))[:MOST_PROCESSES]
                if (pid := _pid(row.get("pid"))) is not None
            ),
        ),
        warnings,
    )


def _probe(row: Row) -> RecordedProbe | None:
    names = ("event", "layer", "function", "operation", "role")
    texts = [text for name in names if isinstance(text := row.get(name) or "", str)]
    if len(texts) < len(names):
        return None
    event, layer, function, operation, role = texts
    address = natural(row.get("address")) or None
    probe = RecordedProbe(event, layer, function, operation, role, address)
    return probe if probe.role in ROLES and probe.layer in LAYERS else None


def _flight(row: Row) -> Flight | None:
    wanted = row.get("wanted")
    if not isinstance(wanted, (int, float)) or not 0 < wanted < LONGEST:
        return None
    return Flight(float(wanted), _text(row.get("why")))


def _peer(row: Row) -> Peer | None:
    pid, fd, address = _pid(row.get("pid")), natural(row.get("fd")), _text(row.get("address"))
    if pid is None or fd is None or not re.fullmatch(r"[0-9a-f.:\[\]]{3,56}", address):
        return None
    return Peer(pid, fd, address)


def _file(row: Row) -> File | None:
    pid, fd = _pid(row.get("pid")), natural(row.get("fd"))
    path, mount = _text(row.get("path")), _text(row.get("mount"))
    if pid is None or fd is None or not path or not mount:
        return None
    return File(pid, fd, path, mount, _text(row.get("fstype")), _text(row.get("source")))


def _mount(row: Row) -> TracedMount:
    return TracedMount(
        also=tuple(_text(path) for path in _list(row.get("also"))[:MOST_PATHS]),
        path=_text(row.get("path")),
        connection=natural(row.get("connection")),
        fstype=_text(row.get("fstype")),
        source=_text(row.get("source")),
        daemon_pid=_pid(row.get("daemon_pid")),
        comm=_text(row.get("comm")),
        fs=_text(row.get("fs")) or None,
        limits=_counters(row.get("limits")),
        servers=tuple(pid for pid in map(_pid, _list(row.get("servers"))) if pid is not None),
        program=_text(row.get("program")),
        library=_text(row.get("library")),
        options=tuple(filter(None, map(_text, _list(row.get("options"))))),
        parses=row.get("parses") is True,
        priority=_text(row.get("priority")),
        weighed_by=_text(row.get("weighed_by")),
        follower=_pid(row.get("follower")),
    )


def reason(row: Row) -> Reason:
    """Return a reason from its JSON object."""
    if not isinstance(row.get("code"), str):
        return _in_words(row)
    subject = {
        str(name): value
        for name, item in _dict(row.get("subject")).items()
        if (value := _value(item)) is not None
    }
    figures = {
        str(name): number
        for name, item in _dict(row.get("figures")).items()
        if (number := _number(item)) is not None
    }
    code = next((code for code in Code if code == row["code"]), None)
    if code is None:  # of a newer version
        code, subject = Code.OTHER, {**subject, "what": str(row["code"])}
    return Reason(code, subject, figures, _text(row.get("fix")), _text(row.get("layer")))


def _in_words(row: Row) -> Reason:
    """Return the reason of an older recording, which has sentences alone."""
    what, why = (str(row.get(key) or "") for key in ("what", "why"))
    fix = str(row.get("fix") or row.get("mend") or "")  # "mend" in older recordings
    layer = row.get("layer")
    if not isinstance(layer, str):  # older recordings lack it
        words = {"system call": "syscall", **{layer: layer for layer in LAYERS}}
        layer = next((words[word] for word in words if word in what), "")
    subject: dict[str, Value] = {"what": what, "why": why}
    if match := re.fullmatch(r"daemon of (.+)", what, re.DOTALL):
        subject.update(part="daemon", path=match[1])
    return Reason(Code.OTHER, subject, fix=fix, layer=layer)


def _value(value: object) -> Value | None:
    """Part of a reason's subject."""
    if isinstance(value, list):
        parts = [part for item in value if isinstance(part := _value(item), (str, int))]
        return tuple(parts)
    return value if isinstance(value, str) else natural(value)


def _number(value: object) -> int | float | None:
    """Figure of a reason."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    return natural(value)


def _took(row: Row) -> Took | None:
    ns = natural(row.get("ns"))
    if ns is None:
        return None
    return Took(ns, row.get("least") is not False, natural(row.get("requests")) or 0)


def natural(value: object) -> int | None:
    """Return a whole number from 0 to 2**64 - 1, else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 1 << 64 else None


def _pid(value: object) -> int | None:
    pid = natural(value)
    return pid if pid and pid < 1 << 31 else None


def _pids(value: object) -> tuple[int, ...]:
    return tuple(pid for item in _list(value) if (pid := _pid(item)) is not None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> Row:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[Row]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _counters(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(key): n for key, item in value.items() if (n := natural(item))}
