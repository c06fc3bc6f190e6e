"""A recording from the tar file that a script has left (script.py): `fusetools open`.

The file is hostile input. Nothing of this machine goes into the recording: its kernel's symbols,
and the daemons' programs, are those in the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.facts import HostFacts, Library, Mount, built
from fusetools.host.files import check_readable, open_regular
from fusetools.host.limits import CHANGES
from fusetools.host.processes import parse_maps
from fusetools.host.tar import Damaged, unpack
from fusetools.names import CALL_GRAPHS, DETAILS, LAYERS, LEAST_STACK_BYTES, MOST_STACK_BYTES
from fusetools.output import Output, new_file
from fusetools.plan.daemons import Target
from fusetools.plan.events import Event, Probe
from fusetools.plan.options import Daemons, Options, Workload
from fusetools.plan.planner import ProbePlan
from fusetools.plan.probeset import Group, ProbeSet
from fusetools.reasons import Code, Reason
from fusetools.record import daemons, script
from fusetools.record.finisher import Finisher, Recorded
from fusetools.record.job import Job
from fusetools.record.perf import Since
from fusetools.record.scratch import Scratch
from fusetools.record.tracefs import hits_in, missed_in
from fusetools.results.record import Outcome
from fusetools.session import ROLES, reason

_FILES = re.compile(
    r"(plan\.json|run|command|kallsyms|mountinfo|elves|perf\.(data|tasks|log)|uprobes\.[01]"
    r"|trace\.dat|trace-cmd\.log"
    r"|kprobes\.1|(maps|threads)\.[1-9]\d{0,3}|elf\.[1-9]\d{0,3}\.[1-9]\d{0,3})"
)
MOST_TEXT = 64 << 20  # bytes of one of its text files
WHAT = "cannot open {}"
FIX = "sh record.sh -- WORKLOAD   # where record.sh is by: fusetools script"


def open_tar(path: str, output: str) -> tuple[Outcome, str]:
    """Make the recording ``output`` of the tar file that a script left. Return what became of it,
    and its detail (one of DETAILS). Raise Error if it cannot be made; then ``output`` is as it
    was."""
    check_readable(Path(path), FIX)
    what = WHAT.format(path)
    with Output(output) as target, _scratch(target) as made:
        try:
            with os.fdopen(open_regular(path), "rb") as source:
                names = unpack(source, lambda name: _place(made, name))
            job, recorded, left = _read(made.path, set(names))
        except Damaged as error:
            raise Error(what, str(error), FIX) from error
        except OSError as error:
            raise Error(what, error.strerror or str(error)) from error
        except (ValueError, RecursionError) as error:
            raise Error(what, f"its facts make no sense: {str(error)[:200]}", FIX) from error
        finisher = _Opened(job, made, recorded, left)
        try:
            whole = finisher.assemble()
        except native.CoreError as error:
            raise Error(what, ": ".join(map(str, error.args))) from error
        target.take(made.descriptor, whole.name, keep=True)
        job.outcome.output = Path(os.path.abspath(output))
        return job.outcome, job.options.detail


@contextmanager
def _scratch(target: Output) -> Iterator[Scratch]:
    made = Scratch(target)
    made.make()
    try:
        yield made
    finally:
        made.remove()


def _place(made: Scratch, name: str) -> int | None:
    return new_file(made.descriptor, name) if _FILES.fullmatch(name) else None


@dataclass
class _Left:
    """The part of a tar file that is not in a Recorded.

    ``threads``: process by thread; ``limits``: of mounts, by connection; ``kallsyms``: the path of
    the kernel's symbols; ``programs``: paths of the daemons' programs.
    """

    threads: dict[int, int]
    limits: dict[int, dict[str, int]]
    kallsyms: str | None
    programs: list[str]


class _Daemons(daemons.Daemons):
    """The daemons, as the script saw them."""

    def __init__(self, pids: Sequence[int], gone: Sequence[int], maps: list[daemons.Mapped]):
        self._begin()
        self.started = dict.fromkeys(pids, 0)
        self.gone = frozenset(gone)
        self.maps = maps

    def lives(self, pid: int) -> bool:
        return pid in self.started and pid not in self.gone


class _Job(Job):
    """A job that is over, on another host. ``of``: process by thread."""

    def __init__(
        self,
        options: Options,
        arguments: Sequence[str],
        facts: HostFacts,
        plan: ProbePlan,
        of: Mapping[int, int],
    ) -> None:
        self._begin(options, arguments, facts, plan, 0)
        self._threads = dict(of)

    def servers(self) -> list[int]:
        return sorted({target.mount.daemon_pid or 0 for target in self.plan.targets} - {0})

    def threads(self) -> dict[int, int]:
        return self._threads


class _Opened(Finisher):
    def __init__(self, job: Job, made: Scratch, recorded: Recorded, left: _Left) -> None:
        super().__init__(job, made, recorded)
        self.left = left
        self.kallsyms = left.kallsyms
        self.only = left.programs
        self.avoid = ["[vdso]"]

    def _keep_graph(self, graph: Path) -> str:
        del graph
        return "function_graph is left out"

    def look(self) -> None:
        self.limits = self.left.limits

    def scope(self) -> list[int] | None:
        by_number = self.job.plan.by_pid or self.recorded.callers
        return [*self.job.servers(), *self.recorded.callers] if by_number else None


def _read(at: Path, names: set[str]) -> tuple[Job, Recorded, _Left]:
    """Read the unpacked files. Raise ValueError or Damaged if they make no sense."""
    for name in ("plan.json", "run", "perf.data"):
        if name not in names:
            raise Damaged(f"it has no {name}: no script of fusetools has left it")
    data = json.loads(_text(at, "plan.json"))
    if not isinstance(data, dict) or data.get("format") != script.FORMAT:
        raise Damaged("it is of another version of fusetools")
    run = _Run(_text(at, "run"))
    command = tuple(_text(at, "command").split("\0")[:-1]) if "command" in names else ()
    facts, mounts = _facts(data, run)
    options = _options(data, command)
    plan = _plan(data, facts, mounts)
    threads = {
        int(thread): mount.daemon_pid
        for number, mount in enumerate(mounts, 1)
        if f"threads.{number}" in names and mount.daemon_pid is not None
        for thread in _text(at, f"threads.{number}").split()
        if _whole(thread)
    }
    arguments = [word for word in _list(data, "arguments") if isinstance(word, str)]
    job = _Job(options, arguments, facts, plan, threads)
    outcome = job.outcome
    began, ended = map(float, run.one("uptime", r"(\d{1,12}\.\d+) (\d{1,12}\.\d+)", ("0.0", "0.0")))
    outcome.seconds = round(max(ended - began, 0.01), 2)  # /proc/uptime counts so
    workload = int(run.one("workload", r"(\d{1,9})", ("0",))[0])
    status = run.one("status", r"(\d{1,3})", ("",))[0]
    outcome.exit_status = int(status or 0)
    outcome.interrupted = bool(run.values("interrupted"))
    if run.values("ended"):
        limit = "perf, or trace-cmd, came to its limit (--max-size, or the disk's room)"
        outcome.warnings.append(f"the recording ended early: {limit}")
        outcome.failed = True
    gone = [int(pid) for pid in run.values("gone") if _whole(pid)]
    pids = [mount.daemon_pid for mount in mounts if mount.daemon_pid is not None]
    for pid in gone:
        outcome.warnings.append(f"the daemon, pid {pid}, ended during the recording")
    forks = [int(n) for n in run.one("forks", r"(\d{1,18}) (\d{1,18})", ("0", "0"))]
    since = Since(workload, facts.pid_max)
    if workload and plan.by_pid and forks[1] - forks[0] > since.room:
        fix = "sysctl kernel.pid_max=4194304"
        threads_started = {"threads": forks[1] - forks[0]}
        job.missing.append(Reason(Code.THREAD_NUMBERS_REUSED, {}, threads_started, fix))
    maps, programs = _maps(at, names, mounts)
    before, after = ({}, {})
    if {"uprobes.0", "uprobes.1"} <= names:
        before = hits_in(_text(at, "uprobes.0"), plan.probes)
        after = hits_in(_text(at, "uprobes.1"), plan.probes)
    dropped = int(run.one("graphlost", r"(\d{1,18})", ("0",))[0])
    recorded = Recorded(
        raw=at / script.DATA,
        tasks=at / script.TASKS if script.TASKS in names else None,
        graph=at / script.GRAPH if script.GRAPH in names else None,
        started=datetime.fromtimestamp(
            int(run.one("started", r"(\d{1,11})", ("0",))[0]), timezone.utc
        ),
        callers=(workload,) if workload else (),
        has_exit_status=bool(workload and status),
        daemons=_Daemons(pids, gone, maps),
        maps=maps,
        hits={event: n - before.get(event, 0) for event, n in after.items()},
        misses=_misses(_text(at, "kprobes.1") if "kprobes.1" in names else "", plan.probes),
        lost={"trace-cmd": dropped} if dropped else {},
    )
    kallsyms = str(at / "kallsyms") if _shows_addresses(at, names) else None
    return job, recorded, _Left(threads, _limits(run, mounts), kallsyms, programs)


def _text(at: Path, name: str) -> str:
    with (at / name).open("rb") as file:
        data = file.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise Damaged(f"{name} is too large")
    return data.decode(errors="surrogateescape")


class _Run:
    """The lines "key value" of the file `run`."""

    def __init__(self, text: str) -> None:
        self.lines = [line.partition(" ")[::2] for line in text.splitlines()]

    def values(self, key: str) -> list[str]:
        return [value for name, value in self.lines if name == key]

    def one(self, key: str, pattern: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return the groups of a pattern that the value of a key matches."""
        for value in self.values(key):
            if match := re.fullmatch(pattern, value, re.ASCII):
                return match.groups()
        return default


def _whole(text: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,8}", text) is not None


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return value


def _facts(data: Mapping[str, Any], run: _Run) -> tuple[HostFacts, list[Mount]]:
    """Return the facts, with the connections and daemons that the script found."""
    facts = HostFacts.from_json(json.dumps(data.get("facts")))
    mounts = []
    for number, mount in enumerate(facts.mounts, 1):
        found = run.one(f"mount.{number}", r"(\d{1,10}) (\d{1,9})", ())
        if not found:
            raise ValueError(f"the script has not found {mount.path}")
        connection, pid = map(int, found)
        mounts.append(replace(mount, connection=connection, daemon_pid=pid, servers=()))
    version = run.one("perf", r"([\w.+~-]{1,64})", ("",))[0]
    if facts.perf and version:
        facts = replace(facts, perf=replace(facts.perf, version=version))
    return replace(facts, mounts=tuple(mounts)), mounts


def _options(data: Mapping[str, Any], command: tuple[str, ...]) -> Options:
    detail, call_graph, size = (data.get(key) for key in ("detail", "call_graph", "stack_bytes"))
    if detail not in DETAILS or call_graph not in CALL_GRAPHS or not isinstance(size, int):
        raise ValueError("its options are none of fusetools")
    if not LEAST_STACK_BYTES <= size <= MOST_STACK_BYTES:
        raise ValueError("its stacks have no size of fusetools")
    kind = Workload(command) if command else Daemons()
    return Options(kind, detail=detail, call_graph=call_graph, stack_bytes=size)


def _plan(data: Mapping[str, Any], facts: HostFacts, mounts: Sequence[Mount]) -> ProbePlan:
    probes = tuple(built(Probe, _row(row)) for row in _list(data, "probes"))
    if any(probe.role not in ROLES or probe.layer not in LAYERS for probe in probes):
        raise ValueError("a probe has no role of fusetools")
    events = []
    for row in map(_row, _list(data, "events")):
        name, stack, per_task = (row.get(key) for key in ("name", "stack", "per_task"))
        if not isinstance(name, str) or stack not in ("", "fp", "dwarf"):
            raise ValueError("an event makes no sense")
        events.append(Event(name, stack=str(stack), per_task=per_task is True))
    sets, files = _list(data, "sets"), _list(data, "files")
    if not len(sets) == len(files) == len(mounts):
        raise ValueError("its mounts make no sense")
    clock = data.get("clock")
    return ProbePlan(
        targets=tuple(map(_target, mounts, sets, files)),
        probes=probes,
        events=tuple(events),
        by_pid=data.get("by_pid") is True,
        clock=clock if clock in ("mono", "perf") else "perf",
        missing=tuple(reason(_row(row)) for row in _list(data, "missing")),
        graph=tuple(name for name in _list(data, "graph") if isinstance(name, str)),
        expensive=frozenset(name for name in _list(data, "expensive") if isinstance(name, str)),
    )


def _target(mount: Mount, name: object, files: object) -> Target:
    """Return a mount with what is left of its probe set: its name, and the probed files."""
    if not isinstance(name, (str, type(None))) or not isinstance(files, list):
        raise ValueError("a mount's probes make no sense")
    nothing = Group("", None, re.compile(""))
    places = [Library(str(path), str(path), 0, "") for path in files]
    probe_set = ProbeSet(name, "", ()) if name else None
    return Target(mount, probe_set, tuple((nothing, place) for place in places))


def _row(row: object) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError("a part of it is no object")
    return row


def _maps(
    at: Path, names: set[str], mounts: Sequence[Mount]
) -> tuple[list[daemons.Mapped], list[str]]:
    """Return the daemons' code, and the paths of their programs' copies."""
    copies: dict[tuple[int, str], str] = {}
    for line in _text(at, "elves").splitlines() if "elves" in names else ():
        match = re.fullmatch(r"(\d{1,4}) (\d{1,4}) (/.*)", line, re.ASCII)
        if match and f"elf.{match[1]}.{match[2]}" in names:
            copies[int(match[1]), match[3]] = str(at / f"elf.{match[1]}.{match[2]}")
    rows: list[daemons.Mapped] = []
    for number, mount in enumerate(mounts, 1):
        if f"maps.{number}" not in names or mount.daemon_pid is None:
            continue
        ids = {library.path: library.build_id for library in mount.libraries}
        for part in parse_maps(_text(at, f"maps.{number}")):
            copy = copies.get((number, part.path), "")
            known = ids.get(part.path) or _build_id(copy)
            place = (part.start, part.end - part.start, part.offset)
            rows.append((mount.daemon_pid, *place, part.path, bytes.fromhex(known or ""), copy))
    return rows, sorted(copies.values())


def _build_id(path: str) -> str | None:
    try:
        return native.elf_build_id(path) if path else None
    except native.CoreError:
        return None


def _misses(text: str, probes: Sequence[Probe]) -> dict[str, int]:
    missed = missed_in(text)
    names = {p.event: p.event.partition(":")[2] for p in probes if p.in_kernel}
    return {event: missed[name] for event, name in names.items() if missed.get(name, 0) > 0}


def _shows_addresses(at: Path, names: set[str]) -> bool:
    if "kallsyms" not in names:
        return False
    with (at / "kallsyms").open("rb") as file:
        return any(line[:8].strip(b"0") for line in file.read(1 << 16).splitlines()[100:200])


def _limits(run: _Run, mounts: Sequence[Mount]) -> dict[int, dict[str, int]]:
    limits: dict[int, dict[str, int]] = {}
    for number, mount in enumerate(mounts, 1):
        for value in run.values(f"limit.{number}"):
            name, _, text = value.partition(" ")
            if name in CHANGES and re.fullmatch(r"[0-9]{1,10}", text):
                limits.setdefault(mount.connection, {})[name] = int(text)
    return limits
