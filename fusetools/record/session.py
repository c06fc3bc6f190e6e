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
import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from fusetools.core import native
from fusetools.errors import Error
from fusetools.figures import binary, plural, size
from fusetools.host.cgroup import perf_hierarchy
from fusetools.host.facts import Mount, Tool
from fusetools.host.files import Files
from fusetools.host.mounts import opened_on, read_mounts
from fusetools.host.processes import (
    Sleeper,
    code,
    family,
    open_files,
    read_stat,
    total_cpu_seconds,
)
from fusetools.host.sockets import of_process
from fusetools.host.words import is_cgroup
from fusetools.names import CALIBRATION
from fusetools.output import Output
from fusetools.plan.bundles import bundled
from fusetools.plan.events import RETURN, Event
from fusetools.plan.instances import OF_BOTH, all_by_perf
from fusetools.plan.options import Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Code, Reason, Value
from fusetools.record import cgroup, graceperiods, instance, throttling, tracecmd
from fusetools.record.attached import Attached
from fusetools.record.costs import OF_ROUND_TRIPS, Costs
from fusetools.record.finishing import Finishing
from fusetools.record.merger import Merger
from fusetools.record.perf import (
    SWITCH,
    Perf,
    Since,
    Threads,
    buffer_size,
    command_line,
    per_task_line,
    sizes,
)
from fusetools.record.preflight import check_daemons, check_feedback, output_of, prepared
from fusetools.record.probing import Probing
from fusetools.record.recorder import Recorder
from fusetools.record.scratch import DATA, RING, TASKS, Scratch
from fusetools.record.signals import ENDING, arrived, held_signals, with_parent
from fusetools.record.slices import Slices
from fusetools.record.state import Removed, started
from fusetools.record.switches import perf_misses_switches
from fusetools.record.tracecmd import TraceCmd
from fusetools.record.workload import Workload
from fusetools.results.record import Outcome
from fusetools.session import MOST_OPENED, Opened

CALIBRATIONS = 1000
GRACE = 5.0  # seconds that a workload has to end after a signal, and what hangs to go on
KILLED = 2.0  # after SIGKILL
FORMATS = 1 << 20  # bytes of a recording beside its records
NEVER = (1 << 64) - 1  # ns
MOST_EVENTS = 1 << 14  # perf events of tasks: 10 to 40 us each
LEFT = 124  # exit status, as timeout(1) has it


class Interrupted(Error):
    """A signal came before there was anything to record."""


@dataclass(frozen=True)
class Late:
    """A recording that begins late.

    ``path`` was mounted when the recording was asked for already; events from ``since``
    (time.monotonic()) on are not in it. ``workload``: it runs already. ``ended``: the workload,
    which has ended; ``until``: when.
    """

    path: str
    since: float
    workload: Workload | None = None
    ended: Workload | None = None
    until: float | None = None

    def missing(self) -> Reason:
        until = time.monotonic() if self.until is None else self.until
        subject: dict[str, Value] = {"path": self.path}
        figures: dict[str, float] = {"ago_ns": round(1e9 * (until - self.since))}
        code, fix = Code.MOUNTED_BEFORE_TRACED, f"ls {self.path}   (before; where autofs mounts it)"
        if self.workload:
            code = Code.WORKLOAD_BEFORE_TRACED
            used = total_cpu_seconds(Files(Path("/")), self.workload.pid)
            figures["on_cpu_ns"] = round(1e9 * used)
        elif self.ended:
            code, fix = Code.WORKLOAD_ENDED_BEFORE, ""
            figures["status"] = self.ended.exit_status or 0
            if usage := self.ended.usage:
                figures["on_cpu_ns"] = round(1e9 * (usage.user_seconds + usage.system_seconds))
        return Reason(code, subject, figures, fix, "request")


def record(
    options: Options,
    arguments: Sequence[str],
    tell: Callable[[ProbePlan, Removed], None],
    place: Output | None = None,
    warn: Callable[[str], None] = lambda _: None,
    late: Late | None = None,
    waited: Callable[[Sequence[int]], list[Reason]] = lambda _: [],
) -> Outcome:
    """Records, and returns what became of it; ``tell`` is called once when all is armed, ``warn``
    with what cannot wait until the end. ``place``: where the recording goes, if not to
    options.output with the rights of who invoked sudo. ``waited`` tells what callers wait for
    already, of connections (their numbers).

    ``arguments``: fusetools' own, for the session sample. Error: nothing was recorded.
    """
    with place or output_of(options) as output, prepared(options, arguments, warn) as prepared_:
        lock, removed, user, facts, plan = prepared_
        if not options.force:
            check_feedback(output, plan)
        plan = bundled(facts, plan, lock.number)
        recording = Recording(lock, options, arguments, user, facts, plan, output)
        recording.warn = warn
        for other in lock.beside():
            why = f"another recording ran beside this one, and takes time of it: {other}"
            recording.outcome.warnings.append(why)
        with recording:
            recording.workload = late.workload if late else None
            recording.arm()
            recording.missing += [late.missing()] if late else []
            for known in waited([t.mount.connection for t in recording.plan.targets]):
                recording.missing.append(known)
                warn(known.text)
            tell(recording.plan, removed)
            recording.run()
            try:
                recording.finish()
            finally:
                recording.leave()
            return recording.outcome


class Recording(Probing, Finishing):
    """The things of one recording, made and unmade in order."""

    perf_class = Perf

    def __enter__(self) -> Recording:
        self._signals = held_signals(self.outcome)
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.costs:  # its processes have what the workload waits for the end of
                self.costs.close()
            self._stop()
            self._unmake()
            if self.merger:
                self.merger.close()
            for name in self.state.folders:
                shutil.rmtree(self.lock.directory / name, ignore_errors=True)
            if self.made:
                self.made.remove()
            state = self.state
            if not (state.probes or state.cgroup or state.ftrace or state.instance):
                self.lock.forget()
        finally:
            self._signals.__exit__(None, None, None)

    def arm(self) -> None:
        """Up to the point where everything is recorded and the workload waits."""
        assert self.output is not None
        self.made = Scratch(self.output)
        self.state.scratch = [self.made.note]
        self.lock.write()
        self.made.make()
        self.state.scratch = [self.made.note]
        self.lock.write()
        self.scratch = self.made.path
        self.raw = self.scratch / DATA

        self._expedite(True)
        self._make_probes()
        assert self.tracefs is not None
        if self.plan.graph:
            self._start_graph()

        copies = self.options.call_graph == "dwarf"
        both = any(event.ftrace for event in self.plan.events)
        self.room = sizes(self.facts.cpus, self._free(), copies, both)
        if self.options.max_size < self.room.limit:
            self.room = replace(self.room, limit=self.options.max_size)
        self._make_instance()  # before the workload: who empties it is none of it, by its number
        self.costs = Costs()
        younger = Since(os.getpid() + 1, self.facts.pid_max).condition("common_pid")
        event_cost = self.ring.measured(self.costs.event, younger) if self.ring else None
        if self.ring and any(event.name == SWITCH for event in self.plan.events):
            self.plan = replace(self.plan, switch_records=self.ring.misses_switches())
        group = None
        if self.options.caller is not None:
            self.attached = Attached(self.options.caller, self.user)
            self.quotas["workload"] = throttling.quotas(Files(Path("/")), self.attached.pid)
        if self.options.command:
            options = self.options
            self.workload = Workload(options.command, self.user, os.environ, options.log)
            if any(event.workload for event in self.plan.events):
                group = self._cgroup(self.workload.pid)
        if group is None and not self.ring and any(e.name == SWITCH for e in self.plan.events):
            assert self.facts.perf is not None
            misses = perf_misses_switches(self.facts.perf, self.scratch)
            self.plan = replace(self.plan, switch_records=misses)
        for target in self.plan.targets:
            if target.mount.daemon_pid is not None:
                self.daemons[target.mount.daemon_pid] = started(target.mount.daemon_pid)
                self.sockets[target.mount.daemon_pid] = of_process(target.mount.daemon_pid)
                self.maps += mapped(target.mount)
        files = Files(Path("/"))
        daemons: dict[str, throttling.Quota] = {}
        for daemon in self.daemons:
            daemons.update(throttling.quotas(files, daemon))
        self.quotas["daemon"] = daemons
        if self.workload:
            self.quotas["workload"] = throttling.quotas(files, self.workload.pid)
        opened = [
            Opened(pid, fd, connection)
            for pid in self._callers
            for fd, connection in opened_on(files, pid)
        ]
        self.opened = tuple(opened[:MOST_OPENED])
        self._number_callers()
        self._bound_per_task()
        self._start_perf(
            lambda perf, fifos: self._command_line(perf, fifos, group), self._per_task_line
        )
        self._expedite(False)
        if self.attached:
            self.attached.look()
            self.maps += self.attached.maps()
        if self.graph:
            self.graph.resume()
        if self.ring:
            self.span = time.monotonic_ns(), NEVER
        if any(probe.function == CALIBRATION for probe in self.plan.probes):
            native.calibrate(CALIBRATIONS)  # what is seen of them is the part inside a call
            self.pair_cost = self.costs.pair()
        if event_cost is not None:
            self.event_cost = round(event_cost + self.thrown_away)
        elif self.plan.by_pid and self._records_round_trips():
            self.event_cost = round(self._by_switching(self.costs.recorded_event) or 0) or None
        self.costs.close()
        self.before = self._all_hits()
        for place in self.tracefs.unplaced(self.plan.probes):
            subject = {"function": place}
            self.missing.append(Reason(Code.FUNCTION_UNPLACED, subject, layer="kernel"))
        check_daemons(self.plan, self.user)
        self._check_signals()

    def _records_round_trips(self) -> bool:
        """Whether all events of them are recorded, and none with a stack."""
        cheap = {event.name for event in self.plan.events if not event.stack}
        return not self.ring and cheap.issuperset(OF_ROUND_TRIPS)

    @staticmethod
    def _check_signals() -> None:
        """The last look before it is said that all is armed; a later one ends the recording."""
        if signal.sigpending() & set(ENDING):
            raise Interrupted("interrupted before the recording began")

    def _number_callers(self) -> None:
        """Note which thread numbers the workload can have."""
        if self.plan.by_pid:
            self.forks, last = _forks()
            if self.workload and not self.attached:
                self.since = Since(self.workload.pid, self.facts.pid_max)
            elif self.attached:  # who is started after this look has a greater number
                self.since = Since(last + 1, self.facts.pid_max, self.attached.numbers())

    def _command_line(self, perf: Tool, fifos: tuple[str, str], group: str | None) -> list[str]:
        output, threads = self.raw.name, self._numbers
        return command_line(self.plan, perf, output, fifos, self.room, group, threads)

    def _per_task_line(self, perf: Tool, fifos: tuple[str, str]) -> list[str]:
        assert self.raw_tasks is not None
        output, pids = self.raw_tasks.name, self._memory_of()
        return per_task_line(self.plan, perf, output, fifos, self.room, pids, self._numbers)

    def _bound_per_task(self) -> None:
        """Replace copies of stacks where they would need too many events: a daemon of a thousand
        threads on a hundred CPUs. Error: the user's own probe set would."""
        events = [event for event in self.plan.events if event.per_task]
        files = Files(Path("/"))
        tasks = sum(len(files.list(f"/proc/{pid}/task")) for pid in self._memory_of())
        opened = len(events) * tasks * self.facts.cpus
        if opened <= MOST_EVENTS:
            return
        figures = {"threads": tasks, "cpus": self.facts.cpus, "events": opened}
        fix = "fusetools record --call-graph fp -- …"
        reason = Reason(Code.TOO_MANY_THREADS, {}, figures, fix, "off_cpu")
        if any(not event.stack for event in events):
            raise Error("cannot record the daemon by this probe set", reason.why, "--fs libfuse")
        self.missing.append(reason)
        by_frames = (
            replace(event, stack="fp", per_task=False) if event.per_task else event
            for event in self.plan.events
        )
        self.plan = replace(self.plan, events=tuple(by_frames))

    def _memory_of(self) -> list[int]:
        """Return the processes whose memory samples may hold: the daemons, and the workload if its
        stacks are to be copied.

        A user's own probe set reads only daemons that permissions.check_probe_set() has seen.
        """
        pids = set(self._servers()) - {self.pid}
        if any(event.per_task and not event.stack for event in self.plan.events):
            pids &= {target.mount.daemon_pid for target in self.plan.targets} - {None}
        daemons = [pid for pid in sorted(pids) if started(pid)]
        return [*daemons, *self._callers] if self.options.call_graph == "dwarf" else daemons

    def _start_perf(
        self,
        command_line: Callable[[Tool, tuple[str, str]], list[str]],
        per_task_line: Callable[[Tool, tuple[str, str]], list[str]] | None = None,
    ) -> None:
        """Start perf and ftrace, with their events on. ``per_task_line``: of a second perf, for the
        per-task events.

        Probes that cannot be placed show only then: they are left out. Error: perf or ftrace does
        not record for another reason.
        """
        assert self.facts.perf is not None and self.tracefs is not None
        for tried in (False, True):
            self.perf = self.perf_class(self._folder())
            daemons = sorted(tid for tid, pid in self._threads().items() if pid != self.pid)
            self._numbers = Threads(self.since, daemons)
            argv = command_line(self.facts.perf, self.perf.fifos)
            self._start(self.perf, argv, self.raw.parent)
            if per_task_line and any(event.per_task for event in self.plan.events):
                self.raw_tasks = self.raw.with_name(TASKS)
                self.task_perf = self.perf_class(self._folder())
                argv = per_task_line(self.facts.perf, self.task_perf.fifos)
                self._start(self.task_perf, argv, self.raw.parent)
            try:
                events = self._of_ftrace() if self.ring else []
                later = [event for event in events if event.name in OF_BOTH]
                if self.ring:  # while perf begins
                    self.ring.choose((e for e in events if e not in later), self._numbers)
                for perf in self._perfs:
                    perf.enable()
                if self.ring and self.costs and later:
                    # perf looks at each event that it has a filter for.
                    self.thrown_away = self._by_switching(self.costs.thrown_away) or 0.0
                if self.ring:  # perf is to be told before it, of each
                    self.ring.choose(later, self._numbers)
                break
            except Error:
                if self.ring:
                    self.ring.clear()
                for perf in self._perfs:
                    perf.kill()  # it may hold the probes that are removed now
                refused = [] if tried else self._cannot_be_placed()
                if not refused:
                    raise
                for perf in self._perfs:
                    perf.close()
                self.task_perf = self.raw_tasks = None
                for probe, why in refused:
                    self._refuse(probe, why)

        if self.ring and self.perf:
            self.ring.start()
            self.ring.resume()

    def _by_switching(
        self, measure: Callable[[Callable[[bool], None]], float | None]
    ) -> float | None:
        """What is measured with perf's events on and off in turn; then they are on. None: perf has
        much to write."""
        assert self.perf is not None
        try:
            return measure(self._switch_perf)
        except TimeoutError:
            self.perf.enable()
            return None

    def _switch_perf(self, on: bool) -> None:
        """TimeoutError: perf has much to write, and does not look for commands."""
        assert self.perf is not None
        if not self.perf.tell("enable" if on else "disable", 1.0):
            raise TimeoutError

    def _of_ftrace(self) -> list[Event]:
        return [event for event in self.plan.events if event.ftrace]

    def _make_instance(self) -> None:
        """ftrace's, for the events that are planned to go there; where there is none, by perf."""
        assert self.tracefs is not None
        if not any(event.ftrace for event in self.plan.events):
            return
        self.state.instance = instance.new_name()
        self.lock.write()
        ring = instance.Instance(self.tracefs.root, self.state.instance, self.scratch / RING)
        together = min(instance.BUFFERS, self._free() // 8)
        size = buffer_size(self.facts.cpus, together, instance.LARGEST, instance.SMALLEST)
        try:
            pid = ring.make(self.plan.clock, size, self.room.limit)
        except OSError as error:
            self._remove_instance(ring)
            ring.output.unlink(missing_ok=True)
            events = all_by_perf(self.plan.events)
            self.plan = replace(self.plan, events=events, in_part=False)
            why = error.strerror or str(error)
            self.outcome.warnings.append(f"perf recorded all, which costs more: {ring.path}: {why}")
            return
        self.state.processes.append((pid, started(pid) or 0))
        self.lock.write()
        ring.buffers = size * self.facts.cpus
        self.ring = ring

    def _remove_instance(self, ring: instance.Instance) -> None:
        if instance.remove(ring.path):
            self.state.instance = ""
        else:
            why = f"the ftrace instance {ring.path} cannot be removed: fusetools clean"
            self.outcome.warnings.append(why)

    def _start(
        self,
        recorder: Recorder,
        argv: list[str],
        directory: Path,
        number: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Starts one that gets signal ``number`` where we are killed, and notes it."""
        pid = recorder.start(argv, partial(with_parent, os.getpid(), number), directory)
        self.state.processes.append((pid, started(pid) or 0))
        self.lock.write()

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
        self._start(self.graph, argv, self.scratch, signal.SIGINT)
        self.graph.wait_until_on()
        traced = self.graph.functions()
        for pattern in self.plan.graph:
            if not any(fnmatchcase(name, pattern) for name in traced):
                subject = {"pattern": pattern}
                self.missing.append(Reason(Code.FUNCTION_UNTRACED, subject, layer="kernel"))

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

    def _full(self) -> bool:
        """Whether perf stopped at its limit, or another process filled the disk."""
        try:
            full = max(self._sizes()) >= self.room.limit or self._at_limit()
            return full or self._free() == 0
        except Error:
            return False

    def _at_limit(self) -> bool:
        """Whether it has reached --max-size."""
        return self._written() >= self.options.max_size

    def _too_large(self) -> bool:
        """Whether there is soon no room to keep what is written, as others fill the disk too, or
        trace-cmd has written too much. (perf has its own limit.)"""
        if self._stopped:
            return False
        raw = self._written()
        why = f"No space left on device for more of it ({self._place()})"
        # What is in the buffers is still to come, and the file is there twice for a moment.
        buffers = self.room.buffer * self.facts.cpus * len(self._perfs)
        buffers += self.ring.buffers if self.ring else 0
        needed = raw + 2 * (buffers + FORMATS)
        parts = 0
        if self.graph is not None:
            parts = sum(path.stat().st_size for path in self.scratch.glob("trace.dat*"))
            needed = raw + tracecmd.room(parts, self.graph.buffers)
        try:
            if self._free() > needed:
                if parts < self.options.max_size:
                    return False
                why = f"it reached {binary(self.options.max_size)} (--max-size)"
        except Error as error:
            why = f"{self._place()}: {error.why}"
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
            message = error.strerror or str(error)
            self.missing.append(Reason(Code.CGROUP_REFUSED, {"message": message}))
            return None
        return made.name

    def run(self) -> None:
        """Until the workload ends, the time is over, or a signal comes."""
        assert self.perf is not None and self.tracefs is not None
        self.started = datetime.now(timezone.utc)
        begin = self.began = time.monotonic()
        if self.workload and not self.attached:
            self.workload.start()
        if self.ring and self.plan.in_part:
            self.slices = Slices(self.plan, self._tell_of, self.ring.recorded, self._sizes)
        limit = None if self.options.duration is None else begin + self.options.duration
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
        step = 0.1 if self.attached else 1.0
        while not (self.workload and self.workload.poll()):
            if self.attached and self.attached.ended:
                return
            if self._one_ended() and self._perf_ended():
                return
            left = step if limit is None else min(step, limit - time.monotonic())
            if left <= 0 or self._too_large():
                return
            if self.slices and not self._perf_died:
                left = min(left, self.slices.go_on())
            if not self._pass_on(arrived(left)):
                continue
            if self.workload is None:
                return
            end = time.monotonic() + (GRACE if self._times_asked < 2 else KILLED)
            limit = min(end, limit or end)

    def _one_ended(self) -> bool:
        """Whether perf has ended by itself, or who empties ftrace's buffers; or both together
        have written enough."""
        ended = any(perf.ended for perf in self._perfs) or bool(self.ring and self.ring.ended)
        return ended or self._at_limit()

    def _end_span(self) -> None:
        if self.span and self.span[1] == NEVER:
            self.span = self.span[0], time.monotonic_ns()

    def _perf_ended(self) -> bool:
        """One of them has ended: said at once; whether there is nothing to wait for."""
        self._end_span()
        if self.ring:
            self.ring.pause()
        for perf in self._perfs:
            if not self._perf_died and not perf.ended:
                perf.tell("disable", 5.0)
        if self.workload and not self._perf_died:
            self.warn(f"the recording ended: {self._why_ended()}; the workload goes on")
        self._perf_died = True
        return self.workload is None

    def _why_ended(self) -> str:
        assert self.perf is not None
        if self._at_limit():
            rate = self._written() / max(time.monotonic() - self.began, 1e-3)
            limit = f"{binary(self.options.max_size)} (--max-size)"
            return f"it reached {limit}, at {size(rate)}/s"
        if self._full():
            return f"No space left on device for more of it ({self._place()})"
        if self.ring and self.ring.ended and not self.ring.whole:
            return self.ring.complaint()
        return next(filter(None, (perf.complaint() for perf in self._perfs)), "perf was killed")

    def leave(self) -> None:
        """Waits for the workload, once all is written; not for one that hangs."""
        files = Files(Path("/"))
        if self._note_end() or self.workload is None:
            return
        pid = self.workload.pid
        written = f"{self.outcome.output} is written; " if self.outcome.output else ""
        self.warn(f"{written}the workload (pid {pid}) goes on")
        hanging: float | None = None
        end = None if self._times_asked < 2 else time.monotonic() + KILLED
        while not self._note_end():
            if self._pass_on(arrived(0.5)) and self._times_asked > 1:
                end = time.monotonic() + KILLED
            hung = [member for member in family(files, pid) if member.hung]
            hanging = (hanging or time.monotonic()) if hung else None
            since = time.monotonic() - hanging if hanging is not None else 0.0
            if since > GRACE or (end is not None and time.monotonic() > end):
                self._name_left(family(files, pid))
                return

    def _name_left(self, sleepers: list[Sleeper]) -> None:
        self.outcome.left = True
        self.outcome.exit_status = LEFT
        for sleeper in sleepers:
            where = f"in {sleeper.function}" if sleeper.function else "in the kernel"
            what = f"waits {where} for a file system" if sleeper.hung else "is alive"
            self.outcome.warnings.append(f"left behind: {sleeper.comm} (pid {sleeper.pid}) {what}")

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

    def _stop(self) -> None:
        """What records; once, whatever happened before. What was made for it goes in _unmake()."""
        if self._stopped:
            return
        self._stopped = True
        self.hits = self._hits()
        if self.since and (more := _forks()[0] - self.forks) > self.since.room:
            fix = "sysctl kernel.pid_max=4194304"
            self.missing.append(Reason(Code.THREAD_NUMBERS_REUSED, {}, {"threads": more}, fix))
        files = Files(Path("/"))
        for whose, before in self.quotas.items():
            self.outcome.throttled += throttling.since(files, whose, before)
        if self.workload:
            self.workload.abandon()
        self._end_span()
        if self.graph:
            self.graph.pause()
        ring_died = self.ring is not None and self.ring.ended
        if self.ring:
            self.ring.end()
        if self.perf and self.perf.process is None:
            for perf in self._perfs:
                perf.close()
        elif self.perf:
            died = any(perf.ended for perf in self._perfs)
            for perf in self._perfs:
                perf.pause()
            with contextlib.suppress(OSError):  # it is tried again
                self.merger = Merger() if self.output else None  # not before: it would be recorded
            self._expedite(True)
            stopped = [perf.stop() for perf in self._perfs]  # each of them
            whole = all(stopped) and not died
            if self.ring:
                whole = self.ring.stop() and not ring_died and whole
            if not whole or self._full():
                self.outcome.warnings.append(f"the recording ended early: {self._why_ended()}")
                self.outcome.failed = True
            for perf in self._perfs:
                perf.close()
        if self.ring and self.ring.lost:
            self.lost["ftrace"] = self.ring.lost
        self._stop_graph()
        missed = self.tracefs.missed_returns() if self.tracefs and self.state.probes else {}
        for probe in (probe for probe in self.plan.probes if probe.in_kernel):
            if (count := missed.get(probe.recorded_as.partition(":")[2], 0)) > 0:
                self.misses[probe.event] = count
        ended = {pid for pid, start in self.daemons.items() if started(pid) != start}
        for pid in self.daemons:
            if pid in ended:
                self.outcome.warnings.append(f"the daemon, pid {pid}, ended during the recording")
            elif _is_stopped(files, pid):
                self.stopped_daemons.add(pid)
                self.outcome.warnings.append(
                    f"the daemon, pid {pid}, was stopped at the recording's end (kill -CONT {pid})"
                )

        if ended:
            self.outcome.warnings += self._followers(files, ended)

    def _followers(self, files: Files, ended: set[int]) -> Iterator[str]:
        """That another process answers the mount of a daemon that has ended."""
        mounts = read_mounts(files, open_files(files), [])
        now = {mount.path: mount.daemon_pid for mount in mounts}
        for mount in (target.mount for target in self.plan.targets):
            pid = now.get(mount.path)
            if mount.daemon_pid in ended and pid not in (None, mount.daemon_pid):
                yield f"pid {pid} answers {mount.path} since: its callbacks were not recorded"

    def _unmake(self) -> None:
        """Removes ftrace's instance, the probes, the cgroup, once: 0.2 s, in which the recording is
        put together already. Nothing records any more."""
        if self._unmade:
            return
        self._unmade = True
        if self.ring:
            self._remove_instance(self.ring)
        for perf in self._perfs:  # they keep probes, and the cgroup
            perf.let_go()
        self.state.processes = []
        self._expedite(False)
        if self.tracefs and self.state.probes:
            self.state.probes = self.tracefs.remove(self.state.probes)
            if self.state.probes:
                held = f"{plural(len(self.state.probes), 'event')} of probes"
                self.outcome.warnings.append(
                    f"{held} stay, in use by {self.tracefs.users()}: fusetools clean"
                )
        if self.state.cgroup and cgroup.remove(Path(self.state.cgroup)):
            self.state.cgroup = ""
        self.lock.write()

    def _expedite(self, on: bool) -> None:
        """The kernel's grace periods, while the events are closed; noted before."""
        if on and graceperiods.may_be_expedited():
            self.state.expedited = True
            self.lock.write()
            graceperiods.expedite(True)
        elif not on and self.state.expedited:
            self.state.expedited = not graceperiods.expedite(False)


def _forks() -> tuple[int, int]:
    """Threads that the kernel has started since it runs, and the number of the last."""
    files = Files(Path("/"))
    lines = (files.read("/proc/stat", quiet=True) or "").splitlines()
    forks = next((int(line.split()[1]) for line in lines if line.startswith("processes ")), 0)
    last = (files.read("/proc/loadavg", quiet=True) or "").split()[-1:]
    return forks, int(last[0]) if last else 0


def _is_stopped(files: Files, pid: int) -> bool:
    """By SIGSTOP, or a debugger."""
    process = read_stat(files, pid)
    return process is not None and process.state in ("T", "t")


def mapped(mount: Mount) -> list[tuple[int, int, int, int, str, bytes, str]]:
    """The code of its daemon, as native.merge() takes it."""
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
