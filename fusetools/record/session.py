"""A recording from beginning to end: lock, probes, perf, workload, clean-up, one perf.data.

The order matters. trace-cmd switches function_graph on, and is paused; the workload is forked and
waits; perf opens its events, switched off; they are switched on, then function_graph's; the probes'
cost is measured, the workload is released. At the end function_graph is paused, perf stops, then
trace-cmd, then the probes go, then the file gets its session sample. Every thing made is noted
before it is made (state.py). Signals are held back all the while, and taken where the recording
waits.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import struct
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from fusetools import __version__, _core
from fusetools.errors import Error
from fusetools.host.cgroup import perf_hierarchy
from fusetools.host.facts import HostFacts, Library, Mount, Tool
from fusetools.host.files import Files, bounded
from fusetools.host.mounts import PATIENCE, all_namespaces, unanswering, with_daemon
from fusetools.host.probe import read_host
from fusetools.host.processes import Sleeper, code, family, thread_comms
from fusetools.host.words import is_cgroup
from fusetools.missing import Missing
from fusetools.output import PRINTED, Output, Owner
from fusetools.plan import planner, probeset
from fusetools.plan.bundles import bundled, unbundled
from fusetools.plan.events import NUMBER, RETURN, Probe
from fusetools.plan.kernel import NO_UNIQUE
from fusetools.plan.planner import CALIBRATION, ProbePlan, Target
from fusetools.plan.request import Request
from fusetools.record import cgroup, graceperiods, merger, symbols, throttling, tracecmd, tracefs
from fusetools.record.perf import Perf, Since, command_line, sizes
from fusetools.record.scratch import DATA, Scratch
from fusetools.record.state import Lock, Removed, started
from fusetools.record.tracecmd import TraceCmd
from fusetools.record.tracefs import Tracefs
from fusetools.record.workload import Usage, User, Workload, caller, cannot_run

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = (*ENDING, signal.SIGCHLD)
CALIBRATIONS = 1000
SYSCALLS = 10_000
SYSCALL = "raw_syscalls:sys_enter"
SESSION = "fusetools:session"
SESSION_BYTES = 16 << 20  # write::SESSION_MAX in the core
GRACE = 5.0  # seconds that a workload has to end after a signal, and what hangs to go on
KILLED = 2.0  # after SIGKILL
LEFT = 124  # exit status, as timeout(1) has it
SI_KERNEL = 0x80  # a signal that the terminal sent to the whole process group


class Interrupted(Error):
    """A signal came before there was anything to record."""


@dataclass
class Outcome:
    """What became of a recording. ``output`` is None when there is no file."""

    output: Path | None = None
    size: int = 0
    seconds: float = 0.0
    events: int = 0
    requests: int = 0
    lost: int = 0
    exit_status: int = 0
    unavailable: tuple[Missing, ...] = ()
    warnings: list[str] = field(default_factory=list)
    throttled: list[dict[str, Any]] = field(default_factory=list)  # by quotas of cgroups
    failed: bool = False  # perf ended early, or the file is as perf left it
    left: bool = False  # the workload, which hangs
    interrupted: bool = False  # by a signal
    usage: Usage | None = None  # the workload's
    calibration: float | None = None  # ns of one call of the function that costs are measured on


def prepare(request: Request) -> tuple[HostFacts, ProbePlan]:
    """The plan for this host. Error: with what is missing, and what mends it."""
    facts = read_host()
    _check(facts)
    if request.pid is not None:
        facts = _with_pid(facts, request)
    chosen = None
    if request.fs is not None:
        chosen = _chosen(request.fs)
    found = planner.targets(facts, request, probeset.builtin(), chosen)
    libraries: list[tuple[Library, int | None]] = [
        (library, target.mount.daemon_pid) for target in found for library in target.libraries
    ]
    own = Library(path=_core.__file__, host_path=_core.__file__, inode=0, device="")
    functions, plain, unreadable = symbols.functions([*libraries, (own, None)])
    comms = {
        pid: thread_comms(Files(Path("/")), pid)
        for pid in (target.mount.daemon_pid for target in found)
        if pid is not None
    }
    has_cgroup = perf_hierarchy(Files(Path("/"))) is not None
    plan = planner.plan(facts, request, found, functions, plain, own, comms, has_cgroup, unreadable)
    return facts, plan


def planned(request: Request) -> tuple[HostFacts, ProbePlan]:
    """What record() would record."""
    if request.command:
        _check_command(request.command[0])
    if Path(tracefs.PLACE, "events").exists():
        return prepare(request)
    with prepared(request, ["record"]) as (_, _, _, facts, plan):
        return facts, plan


def _check(facts: HostFacts) -> None:
    if facts.perf is None:
        raise Error("cannot record", facts.perf_why or "perf is not installed", "make install")
    if facts.perf.libtraceevent is False:
        raise Error(
            "cannot record", "this perf is built without libtraceevent: it has no tracepoints"
        )
    if facts.uid != 0:
        raise Error("cannot record", "only root may make probes", "sudo fusetools record …")
    if "--control" not in facts.perf.options:
        why = f"perf {facts.perf.version} has no --control (perf 5.10 and later)"
        raise Error("cannot record", why, "install a newer perf")
    if facts.tracefs is None:
        raise Error(
            "cannot record", "tracefs cannot be mounted", f"mount -t tracefs nodev {tracefs.PLACE}"
        )
    if not facts.tracefs_writable:
        why = f"{facts.tracefs} cannot be written"
        if facts.lockdown not in (None, "none"):
            why += f": the kernel is locked down ({facts.lockdown})"
        raise Error("cannot record", why, "in a container: run it with --privileged")


def _with_pid(facts: HostFacts, request: Request) -> HostFacts:
    """With the daemon that --pid names, where it is not the one that was found."""
    pid = request.pid
    assert pid is not None
    if started(pid) is None:
        raise Error(f"there is no process {pid}")
    if any(mount.daemon_pid == pid for mount in facts.mounts):
        return facts
    paths = request.mounts
    mounts = tuple(
        with_daemon(Files(Path("/")), mount, pid)
        if mount.path in paths or len(facts.mounts) == 1
        else mount
        for mount in facts.mounts
    )
    return HostFacts(**{**facts.__dict__, "mounts": mounts})


def _chosen(text: str) -> probeset.ProbeSet:
    """The probe set of --fs: NAME or PATH, then +GROUP for each optional group."""
    extra: list[str] = []
    if not Path(text).exists():
        text, *extra = text.split("+")
    known = {one.name: one for one in probeset.builtin()}
    if text in known:
        return planner.select(known[text], extra)
    if "/" not in text and not text.endswith(".toml"):
        names = ", ".join(sorted(known))
        raise Error(f"there is no probe set {text}", f"there are: {names}", "--fs PATH.toml")
    return planner.select(probeset.load(Path(text)), extra)


def record(
    request: Request,
    arguments: Sequence[str],
    tell: Callable[[ProbePlan, Removed], None],
    place: Output | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Records, and returns what became of it; ``tell`` is called once when all is armed, ``warn``
    with what cannot wait until the end. ``place``: where the recording goes, if not to
    request.output with the rights of who called sudo.

    ``arguments``: fusetools' own, for the session sample. Error: nothing was recorded.
    """
    with place or output_of(request) as output, prepared(request, arguments) as prepared_:
        lock, removed, user, facts, plan = prepared_
        if not request.force:
            _check_feedback(output, plan)
        recording = Recording(lock, request, arguments, user, facts, bundled(facts, plan), output)
        recording.warn = warn
        with recording:
            recording.arm()
            tell(recording.plan, removed)
            recording.run()
            recording.finish()
            recording.leave()
            return recording.outcome


def _check_feedback(output: Output, plan: ProbePlan) -> None:
    """Error where the recording would record how it is written itself."""
    device = output.device
    number = os.major(device) << 20 | os.minor(device)
    for target in plan.targets:
        if target.mount.connection == number:
            raise Error(
                f"cannot write {output.path}",
                f"it is on {target.mount.path}, which is traced: each write would make more events",
                "-o FILE on another file system, or --force to record that",
            )


def output_of(request: Request) -> Output:
    """Where the recording goes. Error: it cannot be written there."""
    if request.output == PRINTED:
        raise Error("a recording cannot be printed", "perf writes it at any place", "-o FILE")
    if os.geteuid() != 0:
        raise Error("cannot record", "only root may make probes", "sudo fusetools record …")
    return Output(request.output, owner(request.as_root))


def owner(as_root: bool) -> Owner | None:
    """Whom files are for: who called sudo."""
    user = None if as_root else caller(os.environ)
    return Owner(user.uid, user.gid, user.groups, user.name) if user else None


@contextlib.contextmanager
def prepared(
    request: Request, arguments: Sequence[str]
) -> Iterator[tuple[Lock, Removed, User | None, HostFacts, ProbePlan]]:
    """The lock, what a killed recording had left, whom the workload runs as, and the plan."""
    user = None if request.as_root else caller(os.environ)
    if request.command:
        _check_command(request.command[0])
    with Lock(["fusetools", *arguments]) as lock:
        removed = lock.clean()
        if removed.left:
            raise Error(
                "a killed recording left what cannot be removed",
                "; ".join(removed.left),
                "end whoever uses it, then: fusetools clean",
            )
        with _tracefs(lock):
            facts, plan = prepare(request)  # runs commands: signals are not held back yet
            yield lock, removed, user, facts, plan


def _check_command(name: str) -> None:
    def look() -> str:
        if shutil.which(name) is not None:
            return ""
        return str(13 if "/" in name and Path(name).exists() else 2)

    # It may lie on a file system that hangs: then it is tried.
    number = bounded(look, PATIENCE)
    if number:
        raise cannot_run(name, int(number))


@contextlib.contextmanager
def _tracefs(lock: Lock) -> Iterator[None]:
    """tracefs at its place: mounted for the time of the recording where it is not."""
    if Path(tracefs.PLACE, "events").exists():
        yield
        return
    lock.state.mounted, lock.state.tracefs = True, tracefs.PLACE
    lock.write()
    try:
        lock.state.mounted = tracefs.mount()
        yield
    finally:
        if not (lock.state.probes or lock.state.ftrace):
            if lock.state.mounted:
                tracefs.unmount()
            lock.forget()


@contextlib.contextmanager
def held_signals(outcome: Outcome) -> Iterator[None]:
    """Signals wait until asked for; of what came late only that it came is kept: everything ends
    anyway."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        while (came := signal.sigtimedwait(SIGNALS, 0)) is not None:
            outcome.interrupted |= came.si_signo in ENDING
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Recording:
    """The things of one recording, made and unmade in order."""

    def __init__(
        self,
        lock: Lock,
        request: Request,
        arguments: Sequence[str],
        user: User | None,
        facts: HostFacts,
        plan: ProbePlan,
        output: Output | None = None,
    ) -> None:
        self.output = output
        self.warn: Callable[[str], None] = lambda _: None
        self.made: Scratch | None = None
        self.facts = facts
        self.plan = plan
        self.missing = list(plan.unavailable)
        self.lock = lock
        self.state = lock.state
        self.request = request
        self.arguments = tuple(arguments)
        self.user = user
        self.outcome = Outcome()
        self.workload: Workload | None = None
        self.perf: Perf | None = None
        self.graph: TraceCmd | None = None
        self.tracefs: Tracefs | None = None
        self.before: dict[str, int] = {}
        self.hits: dict[str, int] = {}
        self.misses: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.refused: list[Probe] = []
        self.daemons: dict[int, int | None] = {}
        # (pid, start, length, offset in the file, path, build id, where it is here) of their code
        self.maps: list[tuple[int, int, int, int, str, bytes, str]] = []
        self.room = sizes(facts.cpus, 0)
        # Of switches: with a stack of their own, with one of another alike, without.
        self.stacks = (0, 0, 0)
        # Which threads may be the workload's, and how many the kernel had started by then.
        self.since: Since | None = None
        self.forks = 0
        self.pair_cost: int | None = None  # ns of the two probes of a call
        self.event_cost: int | None = None  # ns of an event without a stack
        self.cost: int | None = None  # ns that a daemon call's duration holds of its probes'
        # By whose they are: what quotas of cgroups had taken before, and during the recording.
        self.quotas: dict[str, dict[str, throttling.Quota]] = {}
        self.stopped_daemons: set[int] = set()
        self._stopped = False
        self._times_asked = 0
        self._perf_died = False

    def __enter__(self) -> Recording:
        self._signals = held_signals(self.outcome)
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stop()
            for name in self.state.folders:
                shutil.rmtree(self.lock.directory / name, ignore_errors=True)
            if self.made:
                self.made.remove()
            if not (self.state.probes or self.state.cgroup or self.state.ftrace):
                self.lock.forget()
        finally:
            self._signals.__exit__(None, None, None)

    def arm(self) -> None:
        """Up to the point where everything is recorded and the workload waits."""
        assert self.facts.perf is not None and self.facts.tracefs is not None
        assert self.output is not None
        self.made = Scratch(self.output)
        self.state.scratch = [self.made.note]
        self.lock.write()
        self.made.make()
        self.state.scratch = [self.made.note]
        self.lock.write()
        self.scratch = self.made.path
        self.raw = self.scratch / DATA

        self.tracefs = Tracefs(self.facts.tracefs)
        self.state.tracefs = self.facts.tracefs
        self._make_probes()
        if self.plan.graph:
            self._start_graph()

        group = None
        if self.request.command:
            request = self.request
            self.workload = Workload(request.command, self.user, os.environ, request.log)
            group = None if self.plan.by_pid else self._cgroup(self.workload.pid)
            if group is None:  # everybody's: their switches are enough
                self.plan = replace(self.plan, switch_records=False)
        self.room = sizes(self.facts.cpus, self._free())
        if self.request.max_size < self.room.limit:
            self.room = replace(self.room, limit=self.request.max_size)
        for target in self.plan.targets:
            if target.mount.daemon_pid is not None:
                self.daemons[target.mount.daemon_pid] = started(target.mount.daemon_pid)
                self.maps += _maps(target.mount)
        files = Files(Path("/"))
        daemons: dict[str, throttling.Quota] = {}
        for daemon in self.daemons:
            daemons.update(throttling.quotas(files, daemon))
        self.quotas["daemon"] = daemons
        if self.workload:
            self.quotas["workload"] = throttling.quotas(files, self.workload.pid)
        bare = _core.calibrate(CALIBRATIONS) / CALIBRATIONS, _core.calibrate_syscalls(SYSCALLS)
        self._start_perf(lambda perf, fifos: self._command_line(perf, fifos, group))
        if self.graph:
            self.graph.resume()
        if any(probe.function == CALIBRATION for probe in self.plan.probes):
            self.outcome.calibration = _core.calibrate(CALIBRATIONS) / CALIBRATIONS
            self.pair_cost = round(max(self.outcome.calibration - bare[0], 0))
        if self.plan.by_pid and any(e.name == SYSCALL for e in self.plan.events):
            # A system call has two events.
            self.event_cost = round(max(_recorded_syscall() - bare[1], 0) / 2) or None
        self.before = self.tracefs.hits(self.plan.probes)
        for place in self.tracefs.unplaced(self.plan.probes):
            why = "the kernel took a probe on it, and has not placed it: it can never fire"
            self.missing.append(Missing(f"kernel function {place}", why, layer="kernel"))

    def _command_line(self, perf: Tool, fifos: tuple[str, str], group: str | None) -> list[str]:
        if self.workload and self.plan.by_pid:
            self.since = Since(self.workload.pid, self.facts.pid_max)
            self.forks = _forks()
        since = self.since
        return command_line(self.plan, perf, self.raw.name, fifos, self.room, group, since)

    def _start_perf(self, command_line: Callable[[Tool, tuple[str, str]], list[str]]) -> None:
        """perf, with its events on; without those whose probes cannot be placed, which shows only
        then. Error: for another reason it does not record."""
        assert self.facts.perf is not None and self.tracefs is not None
        for tried in (False, True):
            self.perf = Perf(self._folder())
            argv = command_line(self.facts.perf, self.perf.fifos)
            pid = self.perf.start(argv, partial(with_parent, os.getpid()), self.raw.parent)
            self.state.processes.append((pid, started(pid) or 0))
            self.lock.write()
            try:
                self.perf.enable()
                return
            except Error:
                refused = [] if tried else self._cannot_be_placed()
                if not refused:
                    raise
                self.perf.stop()
                self.perf.close()
                for probe, why in refused:
                    self._refuse(probe, why)

    def _cannot_be_placed(self) -> list[tuple[Probe, str]]:
        """Probes in the daemons that the kernel took and does not place: their first instruction
        is one that it cannot run apart."""
        assert self.tracefs is not None
        self._unbundle()
        entries = [p for p in self.plan.probes if not p.in_kernel and p.kind == "p"]
        tried = [(probe, self.tracefs.why_not_on(probe)) for probe in entries]
        return [(probe, why) for probe, why in tried if why]

    def _make_probes(self) -> None:
        self._note_probes()
        assert self.tracefs is not None
        for probe in self.plan.probes:
            if probe not in self.refused:
                try:
                    self.tracefs.add(probe)
                except Error as error:
                    if probe.bundle:
                        self._unbundle()  # and once more, each by itself
                        return
                    self._refuse(probe, error.why)

    def _note_probes(self) -> None:
        self.state.probes = list(dict.fromkeys(p.recorded_as for p in self.plan.probes))
        self.lock.write()

    def _unbundle(self) -> None:
        """Gives each probe an event of its own: of one that shares an event the kernel does not
        say what is wrong with it."""
        assert self.tracefs is not None
        if not any(probe.bundle for probe in self.plan.probes):
            return
        self.tracefs.remove(self.state.probes)
        self.plan = unbundled(self.plan)
        self._make_probes()

    def _refuse(self, probe: Probe, why: str) -> None:
        """Goes on without the probes of a function: what the kernel refuses shows only then."""
        assert self.tracefs is not None
        gone = [one for one in self.plan.probes if one.place == probe.place]
        self.refused += gone
        names = {one.event for one in gone}
        self.tracefs.remove(names)
        self.plan = replace(
            self.plan,
            probes=tuple(one for one in self.plan.probes if one.event not in names),
            events=tuple(one for one in self.plan.events if one.name not in names),
        )
        what, layer = f"kernel function {probe.place}", probe.layer
        if not probe.in_kernel:
            file, _, _ = probe.place.rpartition(":")
            left = any(one.place.rpartition(":")[0] == file for one in self.plan.probes)
            what = f"callback {probe.function}" if left else self._whose(file)
        why = f"the kernel refuses a probe on it: {why}"
        self.missing.append(Missing(what, why, layer=layer))

    def _whose(self, file: str) -> str:
        """The daemons that have no probe but in ``file``."""
        paths = [
            target.mount.path
            for target in self.plan.targets
            if any(library.host_path == file for _, library in target.groups)
        ]
        return f"daemon of {', '.join(paths)}" if paths else f"probes in {file}"

    def _start_graph(self) -> None:
        """function_graph, by trace-cmd; what it changes is noted first."""
        assert self.facts.trace_cmd is not None and self.tracefs is not None
        root = self.tracefs.root
        tracecmd.check_free(root, self.facts.ftrace_users)
        self.state.ftrace = tracecmd.settings(root)
        self.lock.write()
        self.graph = TraceCmd(root, self.scratch)
        size = tracecmd.buffer_size(self.facts.cpus, self._free())
        self.graph.buffers = size * self.facts.cpus
        name = self.graph.output.name
        argv = tracecmd.command_line(
            self.facts.trace_cmd, name, self.plan.graph, self.plan.clock, size
        )
        # if we are killed, it shall still switch the tracer off
        prepare = partial(with_parent, os.getpid(), signal.SIGINT)
        pid = self.graph.start(argv, prepare, self.scratch)
        self.state.processes.append((pid, started(pid) or 0))
        self.lock.write()
        self.graph.wait_until_on()
        traced = self.graph.functions()
        for pattern in self.plan.graph:
            if not any(fnmatchcase(name, pattern) for name in traced):
                why = "the kernel took it and traces no function of that name"
                self.missing.append(Missing(f"kernel function {pattern}", why, layer="kernel"))

    def _stop_graph(self) -> None:
        """trace-cmd, and ftrace as it was before."""
        if self.graph and self.graph.process is not None:
            if not self.graph.stop():
                why = self.graph.complaint() or "trace-cmd was killed"
                self.outcome.warnings.append(f"function_graph was not recorded whole: {why}")
                self.outcome.failed = True
            if self.graph.lost:
                self.lost["trace-cmd"] = self.graph.lost
        if self.state.ftrace and self.tracefs:
            tracecmd.restore(self.tracefs.root, self.state.ftrace)
            self.state.ftrace = {}

    def _folder(self) -> Path:
        """One of our own beside the lock, noted before it is made."""
        path = self.lock.directory / f"perf.{os.urandom(4).hex()}"
        self.state.folders.append(path.name)
        self.lock.write()
        path.mkdir(mode=0o700)
        return path

    def _free(self) -> int:
        """Bytes that may still be written where the recording goes."""
        disk = os.statvfs(self.scratch)
        return disk.f_bavail * disk.f_frsize

    def _place(self) -> str:
        """Where the recording goes, in words."""
        return self.output.parent if self.output else str(self.raw.parent)

    def _full(self) -> bool:
        """Whether perf stopped at its limit, or another process filled the disk."""
        size = self.raw.stat().st_size if self.raw.exists() else 0
        return size >= self.room.limit or self._free() == 0

    def _at_limit(self) -> bool:
        """Whether perf stopped at --max-size."""
        size = self.raw.stat().st_size if self.raw.exists() else 0
        return self.room.limit == self.request.max_size <= size

    def _graph_too_large(self) -> bool:
        """Whether what trace-cmd has written is too much, or could soon not be kept. (perf has its
        own limit.)"""
        if self.graph is None or self._stopped:
            return False
        parts = sum(path.stat().st_size for path in self.scratch.glob("trace.dat*"))
        raw = self.raw.stat().st_size if self.raw.exists() else 0
        why = f"No space left on device for more of it ({self._place()})"
        if self._free() > raw + tracecmd.room(parts, self.graph.buffers):
            if parts < self.request.max_size:
                return False
            why = f"it reached {self.request.max_size >> 20} MiB (--max-size)"
        self.outcome.warnings.append(f"the recording ended early: {why}")
        self.outcome.failed = True
        return True

    def _cgroup(self, pid: int) -> str | None:
        """The workload's own; None where none can be made: everybody's events are recorded."""
        hierarchy = perf_hierarchy(Files(Path("/")))
        if hierarchy is None:
            return None
        name = cgroup.name()
        self.state.cgroup = str(cgroup.path(hierarchy, name))
        self.lock.write()
        try:
            if not is_cgroup(hierarchy.own):
                raise OSError(errno.EINVAL, "perf does not take the name of ours")
            made = cgroup.Cgroup(hierarchy, name)
            made.add(pid)
        except OSError as error:
            cgroup.remove(Path(self.state.cgroup))
            self.state.cgroup = ""
            why = f"no cgroup can be made for it: {error.strerror}; everybody's are recorded"
            self.missing.append(Missing("the workload's switches and system calls apart", why))
            return None
        return made.name

    def run(self) -> None:
        """Until the workload ends, the time is over, or a signal comes."""
        assert self.perf is not None and self.tracefs is not None
        if signal.sigpending() & set(ENDING):
            raise Interrupted("interrupted before the recording began")
        self.started = datetime.now(timezone.utc)
        begin = self.began = time.monotonic()
        if self.workload:
            self.workload.start()
        limit = None if self.request.duration is None else begin + self.request.duration
        self._wait(limit)
        self.outcome.seconds = time.monotonic() - begin
        self._settle()
        self._stop()
        self._note_end()

    def _note_end(self) -> bool:
        """Whether the workload has ended; its figures then."""
        if self.workload is None or not self.workload.poll():
            return self.workload is None
        self.outcome.exit_status = self.workload.exit_status or 0
        self.outcome.usage = self.workload.usage
        return True

    def _wait(self, limit: float | None) -> None:
        """Until ``limit``, the workload's end, or a signal that ends the recording: without a
        workload at once, else as soon as the workload has had time to end."""
        while not (self.workload and self.workload.poll()):
            if self.perf and self.perf.ended and self._perf_ended():
                return
            left = 1.0 if limit is None else min(1.0, limit - time.monotonic())
            if left <= 0 or self._graph_too_large():
                return
            if not self._pass_on(signal.sigtimedwait(SIGNALS, left)):
                continue
            if self.workload is None:
                return
            end = time.monotonic() + (GRACE if self._times_asked < 2 else KILLED)
            limit = min(end, limit or end)

    def _pass_on(self, came: signal.struct_siginfo | None) -> bool:
        """Whether that is a signal to end; it goes to the workload, unless the terminal has sent it
        there already."""
        if came is None or came.si_signo == signal.SIGCHLD:
            return False
        self.outcome.interrupted = True
        self._times_asked += 1
        if self.workload and self._times_asked > 1:  # who asks twice means it
            self.workload.signal(signal.SIGKILL)
        elif self.workload and came.si_code != SI_KERNEL:
            self.workload.signal(came.si_signo)
        return True

    def _perf_ended(self) -> bool:
        """perf has ended by itself: said at once; whether there is nothing to wait for."""
        if self.workload and not self._perf_died:
            self.warn(f"the recording ended: {self._why_ended()}; the workload goes on")
        self._perf_died = True
        return self.workload is None

    def _why_ended(self) -> str:
        assert self.perf is not None
        if self._at_limit():
            size = self.raw.stat().st_size
            rate = size / max(time.monotonic() - self.began, 1e-3)
            limit = f"{self.request.max_size >> 20} MiB (--max-size)"
            return f"it reached {limit}, at {rate / 1e6:.1f} MB/s"
        if self._full():
            return f"No space left on device for more of it ({self._place()})"
        return self.perf.complaint() or "perf was killed"

    def leave(self) -> None:
        """Waits for the workload, once all is written; not for one that hangs."""
        files = Files(Path("/"))
        if self._note_end() or self.workload is None:
            return
        pid = self.workload.pid
        self.warn(f"{self.outcome.output} is written; the workload (pid {pid}) goes on")
        hanging: float | None = None
        end = None if self._times_asked < 2 else time.monotonic() + KILLED
        while not self._note_end():
            if self._pass_on(signal.sigtimedwait(SIGNALS, 0.5)) and self._times_asked > 1:
                end = time.monotonic() + KILLED
            hung = [one for one in family(files, pid) if one.hung]
            hanging = (hanging or time.monotonic()) if hung else None
            since = time.monotonic() - hanging if hanging is not None else 0.0
            if since > GRACE or (end is not None and time.monotonic() > end):
                self._name_left(family(files, pid))
                return

    def _name_left(self, sleepers: list[Sleeper]) -> None:
        self.outcome.left = True
        self.outcome.exit_status = LEFT
        for one in sleepers:
            where = f"in {one.function}" if one.function else "in the kernel"
            what = f"waits {where} for a file system" if one.hung else "is alive"
            self.outcome.warnings.append(f"left behind: {one.comm} (pid {one.pid}) {what}")

    def _settle(self) -> None:
        """Until the daemon has answered what the workload left behind (RELEASE, FORGET)."""
        before: dict[str, int] | None = None
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            time.sleep(0.02)
            hits = self._hits()
            inside = [name for name in hits if hits[name] > hits.get(name + RETURN, 2**63)]
            if hits == before and not inside:
                return
            before = hits

    def _hits(self) -> dict[str, int]:
        """How often each probe was hit since all was armed."""
        if self.tracefs is None or self.perf is None:
            return {}
        now = self.tracefs.hits(self.plan.probes)
        return {name: n - self.before.get(name, 0) for name, n in now.items()}

    def _stop(self) -> None:
        """perf, then the probes, then the cgroup; once, whatever happened before."""
        if self._stopped:
            return
        self._stopped = True
        self.hits = self._hits()
        if self.since and (more := _forks() - self.forks) > self.since.room:
            why = f"{more:,} threads were started meanwhile, and their numbers began anew"
            self.missing.append(Missing("some of the workload's processes", why))
        files = Files(Path("/"))
        for whose, before in self.quotas.items():
            self.outcome.throttled += throttling.since(files, whose, before)
        if self.workload:
            self.workload.abandon()
        if self.graph:
            self.graph.pause()
        if self.perf and self.perf.process is None:
            self.perf.close()
        elif self.perf:
            died = self.perf.ended
            self.perf.pause()
            self._expedite(True)
            if not self.perf.stop() or died or self._full():
                self.outcome.warnings.append(f"the recording ended early: {self._why_ended()}")
                self.outcome.failed = True
            self.perf.close()
            self._expedite(False)
        self._stop_graph()
        if self.tracefs and self.state.probes:
            missed = self.tracefs.missed_returns()
            for event in (probe.event for probe in self.plan.probes if probe.in_kernel):
                if (count := missed.get(event.partition(":")[2], 0)) > 0:
                    self.misses[event] = count
            self.state.probes = self.tracefs.remove(self.state.probes)
            if self.state.probes:
                some = ", ".join(self.state.probes[:3])
                self.outcome.warnings.append(
                    f"{len(self.state.probes)} probes are in use and stay ({some}): fusetools clean"
                )
        if self.state.cgroup and cgroup.remove(Path(self.state.cgroup)):
            self.state.cgroup = ""
        for pid, start in self.daemons.items():
            if started(pid) != start:
                self.outcome.warnings.append(f"the daemon, pid {pid}, ended during the recording")
            elif _is_stopped(files, pid):
                self.stopped_daemons.add(pid)
                self.outcome.warnings.append(
                    f"the daemon, pid {pid}, was stopped at the recording's end (kill -CONT {pid})"
                )
        self.state.processes = []
        self.lock.write()

    def _answering(self) -> dict[int, bool]:
        """By connection of a traced mount, whether it answers: its daemon runs, and no request
        waits for it. A question of our own would be one more in the daemon's own count."""
        files = Files(Path("/"))
        found = {}
        for target in self.plan.targets:
            connection, pid = target.mount.connection, target.mount.daemon_pid
            waiting = files.read(f"/sys/fs/fuse/connections/{connection}/waiting", quiet=True) or ""
            runs = pid is not None and started(pid) == self.daemons.get(pid)
            found[connection] = runs and pid not in self.stopped_daemons and waiting.strip() == "0"
        return found

    def _new_mounts(self) -> None:
        """Names the mounts that were not there when the recording was planned, unless others were
        asked for: autofs mounts when a path is used first."""
        if self.request.mounts or self.request.pid is not None:
            return
        known = {mount.connection for mount in self.facts.mounts}
        for mount in all_namespaces(Files(Path("/"))):
            if mount.connection not in known:
                why = "it was mounted during the recording: its requests are not in it"
                fix = "record again, now that it is mounted"
                self.missing.append(Missing(f"mount {mount.path}", why, fix, "request"))

    def _servers(self) -> list[int]:
        """The traced daemons, and who measures the probes' cost: where others run the same
        library, its probes fire there too."""
        mounts = [target.mount for target in self.plan.targets]
        found = {os.getpid(), *(pid for mount in mounts for pid in mount.servers)}
        return sorted(found | {m.daemon_pid for m in mounts if m.daemon_pid is not None})

    def _expedite(self, on: bool) -> None:
        """The kernel's grace periods, while the events are closed; noted before."""
        if on and graceperiods.may_be_expedited():
            self.state.expedited = True
            self.lock.write()
            graceperiods.expedite(True)
        elif not on and self.state.expedited:
            self.state.expedited = not graceperiods.expedite(False)

    def finish(self) -> Outcome:
        """The one perf.data, with the session sample, under its name and owned by the user."""
        outcome = self.outcome
        self._new_mounts()
        if not self.raw.exists() or self.raw.stat().st_size == 0:
            why = outcome.warnings[0] if outcome.warnings else "perf wrote nothing"
            raise Error("nothing was recorded", why)
        whole = self.scratch / "merged"
        try:
            self._write(whole)
        except _core.CoreError as error:
            what, why = error.args
            outcome.warnings.append(f"{what}: {why}; kept as perf wrote it")
            outcome.failed = True
            whole.unlink(missing_ok=True)
            whole = self.raw
        outcome.size = whole.stat().st_size
        self._hand_over(whole)
        outcome.unavailable = tuple(self.missing)
        return outcome

    def _hand_over(self, whole: Path) -> None:
        """Gives the file its name and its owner; until then only root can get at it."""
        assert self.output is not None and self.made is not None
        directory = self.made.descriptor
        descriptor = os.open(whole.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory)
        try:
            os.fchmod(descriptor, 0o600)
            if self.user:
                os.fchown(descriptor, self.user.uid, self.user.gid)
        finally:
            os.close(descriptor)
        self.outcome.output = Path(os.path.abspath(self.output.path))
        try:
            self.output.take(directory, whole.name, keep=True)
        except OSError as error:
            # Somebody made a directory of that name meanwhile: the recording is not lost.
            name = f"{self.output.name[:200]}.{os.urandom(4).hex()}"
            os.rename(whole.name, name, src_dir_fd=directory, dst_dir_fd=self.output.directory)
            self.outcome.output = Path(self.output.parent, name)
            why = f"{self.output.path} could not be replaced: {error.strerror}"
            self.outcome.warnings.append(f"{why}; the recording is {self.outcome.output}")
            self.outcome.failed = True

    def _write(self, whole: Path) -> None:
        """The recording. What it holds is examined once it is there, and noted in the room that
        the session has been given for it."""
        session = encode_session(self._session())
        room = min(len(session) + 8192 + 64 * len(self.plan.probes), SESSION_BYTES)
        merged = self._merge(whole, session.ljust(room))
        self.stacks = merged["stacks"]
        self.cost = self._examine(whole, merged["left_out"])
        text = encode_session(self._session(), room)
        if len(text) > room:
            self.outcome.warnings.append("what was found out about it does not fit into it")
            return
        rest = text.ljust(room, "\0").encode()
        with whole.open("r+b") as file:
            for start, end in merged["session_at"]:
                file.seek(start)
                file.write(rest[: end - start])
                rest = rest[end - start :]

    def _merge(self, whole: Path, session: str) -> _core.MergeInfo:
        """perf's events, function_graph's, and the session, into one file, with what names its
        stacks elsewhere: what the daemons had mapped, and the functions in stacks."""
        merge = partial(
            self._merged,
            kallsyms=symbols.KALLSYMS,
            maps=self.maps,
            avoid=unanswering(Files(Path("/")), self._answering()),
            bundles=self._bundles(),
            daemons=self._servers(),
            workload=self.workload.pid if self.workload and self.plan.by_pid else None,
        )
        graph = self.graph.output if self.graph else None
        if graph and graph.exists():
            why = self._clocks_disagree(graph)
            if not why:
                try:
                    return merge([str(self.raw), str(graph)], str(whole), session)
                except _core.CoreError as error:
                    why = ": ".join(error.args)
                    whole.unlink(missing_ok=True)
            self.outcome.warnings.append(
                f"function_graph is kept apart, in {self._keep_graph(graph)}: {why}"
            )
        return merge([str(self.raw)], str(whole), session)

    def _merged(self, inputs: list[str], whole: str, session: str, **more: Any) -> _core.MergeInfo:
        """In a process of its own; without what names the daemons' stacks where that hangs."""
        try:
            return merger.merge(inputs, whole, session, self._asked_to_end, **more)
        except merger.Stuck:
            why = "a file of the daemon's does not answer: its stacks have no names"
            self.outcome.warnings.append(why)
            for left in self.scratch.glob(f".{Path(whole).name}.*"):
                left.unlink()
            more["avoid"] = ["/"]
            return merger.merge(inputs, whole, session, lambda: False, **more)

    def _asked_to_end(self) -> bool:
        return self._pass_on(signal.sigtimedwait(SIGNALS, 0)) and self._times_asked > 1

    def _keep_graph(self, graph: Path) -> Path:
        """Puts trace-cmd's file beside the recording, for the same owner."""
        assert self.output is not None and self.made is not None
        name = self.output.name + ".trace.dat"
        if self.user:
            descriptor = os.open(
                graph.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.made.descriptor
            )
            os.fchown(descriptor, self.user.uid, self.user.gid)
            os.close(descriptor)
        directories = {"src_dir_fd": self.made.descriptor, "dst_dir_fd": self.output.directory}
        os.rename(graph.name, name, **directories)
        return Path(self.output.parent, name)

    def _bundles(self) -> list[tuple[str, str, list[tuple[int, str]]]]:
        """(event, the field that tells its probes apart, (number, event) of each)."""
        found: dict[str, list[tuple[int, str]]] = {}
        for probe in self.plan.probes:
            if probe.bundle:
                found.setdefault(probe.bundle, []).append((probe.number, probe.event))
        return [(event, NUMBER, probes) for event, probes in found.items()]

    def _clocks_disagree(self, graph: Path) -> str:
        """Why the two recordings' clocks are not the same; empty: they are, or nothing tells."""
        assert self.facts.trace_cmd is not None
        ours = [p for p in self.plan.probes if p.in_kernel]
        pairs = [p for p in ours if p.role in ("entry", "return")]
        if not pairs:
            return ""
        function = pairs[0].function
        if any(p.role == "return" for p in pairs):
            ours = [p for p in pairs if p.function == function]
        rows = [(p.event, p.layer, p.function, "", p.role) for p in ours]
        seen = _core.columns(str(self.raw), rows, {})
        if any(p.role == "return" for p in ours):
            calls = seen["calls"]
            tids, starts = array("i", calls["tid"]), array("Q", calls["start"])
            spans = zip(tids, starts, array("Q", calls["duration"]))
        else:  # who waits does so while the request is under way
            requests = seen["requests"]
            tids, starts = array("i", requests["tid"]), array("Q", requests["begin"])
            ends = array("Q", requests["end"])
            spans = zip(tids, starts, (max(e - b, 0) for b, e in zip(starts, ends)))
        at = symbols.kernel_address(Files(Path("/")), function)
        return tracecmd.clocks_disagree(self.facts.trace_cmd, graph, function, at, list(spans))

    def _session(self) -> dict[str, Any]:
        facts, outcome = self.facts, self.outcome
        return {
            "format": 1,
            "fusetools": __version__,
            "command": list(self.request.command),
            "arguments": list(self.arguments),
            "call_graph": self.request.call_graph,
            "detail": self.request.detail,
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": round(outcome.seconds, 6),
            "exit_status": outcome.exit_status if self.workload else None,
            "clock": self.plan.clock,
            "host": {
                "kernel": facts.kernel,
                "arch": facts.arch,
                "cpus": facts.cpus,
                "perf": facts.perf.version if facts.perf else None,
                "trace_cmd": facts.trace_cmd.version if facts.trace_cmd else None,
            },
            "workload_pid": self.workload.pid if self.workload else None,
            "mounts": [_mount(target) for target in self.plan.targets],
            "probes": [
                {
                    "event": probe.event,
                    "layer": probe.layer,
                    "function": probe.function,
                    "operation": probe.operation,
                    "role": probe.role,
                    "address": probe.address,
                }
                for probe in self.plan.probes
            ],
            "unavailable": [vars(missing) for missing in self.missing],
            "misses": self.misses,
            "lost": self.lost,
            "probe_cost_ns": self.cost,
            "pair_cost_ns": self.pair_cost,
            "event_cost_ns": self.event_cost,
            "stacks": list(self.stacks),
            "warnings": outcome.warnings,
            "cgroups": outcome.throttled,
        }

    def _examine(self, recording: Path, left_out: Mapping[str, int]) -> int | None:
        """Reads what was recorded: counts, losses, probes that never fired; returns their cost.

        ``left_out``: samples of an event that are other daemons', and not in it.
        """
        catalogue = [
            (probe.event, probe.layer, probe.function, probe.operation, probe.role)
            for probe in self.plan.probes
        ]
        recorded = {event.name for event in self.plan.events}
        catalogue += [
            (f"fuse:fuse_request_{name}", "request", "", "", role)
            for name, role in (("send", "begin"), ("sent", "sent"), ("end", "end"))
            if f"fuse:fuse_request_{name}" in recorded
        ]
        try:
            seen = _core.scan(str(recording), catalogue, {})
        except _core.CoreError as error:
            self.outcome.warnings.append(": ".join(error.args))
            return None
        samples: Counter[str] = Counter()
        for name, count in seen["events"]:  # an event of two scopes is there twice
            if name != SESSION:
                samples[name] += count
        own = {probe.event for probe in self.plan.probes if probe.function == CALIBRATION}
        self.outcome.events = sum(n for name, n in samples.items() if name not in own)
        self.outcome.requests = seen["requests"]["begun"]
        if seen["lost"]:
            self.lost["perf"] = seen["lost"]
        self.outcome.lost = sum(self.lost.values())
        self.outcome.warnings += seen["warnings"]
        for probe in self.plan.probes:
            if probe.in_kernel:
                continue  # it has a filter, perhaps
            seen_of_it = samples[probe.event] + left_out.get(probe.event, 0)
            missed = self.hits.get(probe.event, 0) - seen_of_it
            if missed > 0:
                self.misses[probe.event] = missed
        requests = seen["requests"]
        if requests["begun"] and requests["ended"] and not requests["matched"]:
            self.missing += {NO_UNIQUE} - set(self.missing)
        self._silent(recording, catalogue, samples)
        self._silent_kernel(samples)
        for one in seen["series"]:
            if one["function"] == CALIBRATION and one["count"]:
                return int(one["percentiles"]["50"])
        return None

    def _silent(
        self,
        recording: Path,
        catalogue: list[tuple[str, str, str, str, str]],
        samples: Counter[str],
    ) -> None:
        """A daemon that had requests and none of whose probes fired runs another file."""
        for target in self.plan.targets:
            pid = target.mount.daemon_pid
            if pid in self.stopped_daemons or started(pid or 0) != self.daemons.get(pid or 0):
                continue  # it did nothing, and that is why
            places = {library.host_path for _, library in target.groups}
            ours = [
                p
                for p in self.plan.probes
                if p.place.rpartition(":")[0] in places and p.role != "inode"
            ]
            if not ours or any(samples[probe.event] for probe in ours):
                continue
            seen = _core.scan(str(recording), catalogue, {"connections": [target.mount.connection]})
            known = {probe.operation for probe in ours}
            if any(
                one["layer"] == "request" and one["entries"] and known & {one["operation"], ""}
                for one in seen["series"]
            ):
                self.missing.append(
                    Missing(
                        f"daemon of {target.mount.path}",
                        f"none of its {len(ours)} probes fired though there were requests: "
                        "it runs another copy of its library",
                        "mount it again",
                        "daemon",
                    )
                )

    def _silent_kernel(self, samples: Counter[str]) -> None:
        """A stage of requests that was never seen though others were."""
        stages = [p for p in self.plan.probes if p.in_kernel and p.layer == "request"]
        if not any(samples[probe.event] for probe in stages):
            return
        for probe in stages:
            if not samples[probe.event]:
                why = f"the kernel took the probe on {probe.place}, and it never fired"
                self.missing.append(Missing(f"requests, {probe.role}", why, layer="request"))


def _recorded_syscall() -> float:
    """ns of a system call of a process that is recorded, as all that are made now are: it is not of
    the workload, so that what it does is left out at the end."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, struct.pack("d", _core.calibrate_syscalls(SYSCALLS)))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        told = answer.read(8)
    os.waitpid(pid, 0)
    return float(struct.unpack("d", told)[0]) if len(told) == 8 else 0.0


def _forks() -> int:
    """Threads that the kernel has started since it runs."""
    lines = (Files(Path("/")).read("/proc/stat", quiet=True) or "").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("processes ")), 0)


def _is_stopped(files: Files, pid: int) -> bool:
    """By SIGSTOP, or a debugger. The name before the state may hold anything, also brackets."""
    state = (files.read(f"/proc/{pid}/stat", quiet=True) or "").rpartition(") ")[2][:1]
    return state in ("T", "t")


def _maps(mount: Mount) -> list[tuple[int, int, int, int, str, bytes, str]]:
    pid = mount.daemon_pid
    assert pid is not None
    libraries = {(library.device, library.inode): library for library in mount.libraries}
    rows = []
    for part in code(Files(Path("/")), pid):
        library = libraries.get((part.device, part.inode))
        build_id = bytes.fromhex(library.build_id or "") if library else b""
        here = library.host_path if library else ""
        place = (part.start, part.end - part.start, part.offset)
        rows.append((pid, *place, part.path, build_id, here))
    return rows


def _mount(target: Target) -> dict[str, Any]:
    mount = target.mount
    return {
        "path": mount.path,
        "connection": mount.connection,
        "fstype": mount.fstype,
        "source": mount.source,
        "daemon_pid": mount.daemon_pid,
        "comm": mount.comm,
        "fs": target.probe_set.name if target.probe_set else None,
    }


def encode_session(session: Mapping[str, Any], room: int = SESSION_BYTES) -> str:
    """As JSON that fits into a sample, or the room in one: what is too long is cut."""
    text = json.dumps(session)
    if len(text) <= room:
        return text
    shorter = {**session}
    for key in ("arguments", "command"):
        shorter[key] = [*session[key][:20], "…"]
        shorter[key] = [word[:200] for word in shorter[key]]
    return json.dumps(shorter)


def with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """In perf, before it runs: it ends with us, even by SIGKILL, and takes signals again."""
    ctypes.CDLL(None).prctl(1, number, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)  # killed before that
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        os.nice(-20)  # on a busy machine the buffers filled while perf waited for a CPU
