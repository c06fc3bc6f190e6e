"""A recording from beginning to end: lock, probes, recorders, callers, clean-up, one perf.data.

The order matters. trace-cmd switches function_graph on, and is paused; the workload is forked and
waits; perf opens its events, switched off; they are switched on, then function_graph's; the probes'
cost is measured, the workload is released. At the end function_graph is paused, perf stops, then
trace-cmd, then the probes go, then the file gets its session sample. Everything is noted before it
is made (state.py). Signals are held back all the while, and taken where the recording waits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.host.files import Files
from fusetools.host.mounts import automounted
from fusetools.host.processes import started, total_cpu_seconds
from fusetools.names import CALIBRATION
from fusetools.output import Output
from fusetools.plan.bundles import bundled
from fusetools.plan.events import RETURN
from fusetools.plan.options import Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Code, Reason, Value
from fusetools.record import cgroup, throttling
from fusetools.record.callers import Callers
from fusetools.record.costs import OF_ROUND_TRIPS, Costs
from fusetools.record.daemons import Daemons
from fusetools.record.finisher import Finisher, Recorded
from fusetools.record.job import Job, ignore
from fusetools.record.merger import Merger
from fusetools.record.owners import Owners
from fusetools.record.perf import SWITCH, Overwriting, Perf, Since, Sizes, command_line, overwriting
from fusetools.record.perf import per_task_line as line_per_task
from fusetools.record.preflight import check_daemons, check_feedback, output_of, prepared
from fusetools.record.probes import Probes
from fusetools.record.recorders import Recorders
from fusetools.record.scratch import DATA, Scratch
from fusetools.record.signals import ENDING, arrived, held_signals
from fusetools.record.slices import Slices
from fusetools.record.state import Removed
from fusetools.record.switches import perf_misses_switches
from fusetools.record.workload import Workload
from fusetools.results.record import Outcome

CALIBRATIONS = 1000
MOST_EVENTS = 1 << 14  # perf events of tasks: 10 to 40 us each


class Interrupted(Error):
    """A signal came before there was anything to record."""


@dataclass(frozen=True)
class Late:
    """A recording that begins late.

    ``path`` was mounted when the recording was asked for already; events from ``since``
    (time.monotonic()) on are not in it. ``did``: what took the longest until it was mounted: words
    and figures. ``workload``: it runs already. ``ended``: the workload, which has ended; ``until``:
    when.
    """

    path: str
    since: float
    did: tuple[Mapping[str, Value], Mapping[str, float]] = ({}, {})
    workload: Workload | None = None
    ended: Workload | None = None
    until: float | None = None

    def missing(self) -> Reason:
        until = time.monotonic() if self.until is None else self.until
        subject: dict[str, Value] = {"path": self.path, **self.did[0]}
        figures: dict[str, float] = {"ago_ns": round(1e9 * (until - self.since)), **self.did[1]}
        code, files = Code.MOUNTED_BEFORE_TRACED, Files(Path("/"))
        fix = f"ls {self.path}   # before: autofs mounts it" * automounted(files, self.path)
        if self.workload:
            code = Code.WORKLOAD_BEFORE_TRACED
            used = total_cpu_seconds(files, self.workload.pid)
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
    warn: Callable[[str], None] = ignore,
    late: Late | None = None,
    waited: Callable[[Sequence[int]], list[Reason]] = lambda _: [],
) -> Outcome:
    """Record, and return what became of it.

    ``arguments``: fusetools' own, for the session sample; ``tell``: called once when all is armed;
    ``warn``: called with what cannot wait until the end; ``place``: where the recording goes, if
    not to options.output with the rights of the user who invoked sudo; ``waited``: returns what
    callers wait for already, on connections (their numbers). Raise Error if nothing was recorded.
    """
    with place or output_of(options) as output, prepared(options, arguments, warn) as prepared_:
        lock, removed, user, facts, plan = prepared_
        if not options.force:
            check_feedback(output, plan)
        plan = bundled(facts, plan, lock.number)
        job = Job(lock, options, arguments, user, facts, plan, output, warn)
        for other in lock.beside():
            why = f"another recording ran at the same time and affected the timings: {other}"
            job.outcome.warnings.append(why)
        with Recording(job) as recording:
            recording.callers.workload = late.workload if late else None
            recording.arm()
            job.missing += [late.missing()] if late else []
            for known in waited([t.mount.connection for t in job.plan.targets]):
                job.missing.append(known)
                warn(known.text)
            tell(job.plan, removed)
            recording.run()
            try:
                recording.finish()
            finally:
                recording.callers.leave()
            return job.outcome


class Recording:
    """A job that becomes a file: its parts, made and unmade in order.

    ``buffer``: bytes of each CPU's buffer that perf overwrites, for a flight recorder: then perf
    writes into no file until it is asked to. ``data``: the name of perf's file.
    """

    def __init__(self, job: Job, buffer: int = 0, data: str = DATA) -> None:
        assert job.output is not None
        self.job = job
        self.buffer, self.data = buffer, data
        self.made = Scratch(job.output)
        self.probes = Probes(job)
        self.callers = Callers(job)
        self.owners = Owners(job)
        self.daemons: Daemons | None = None
        self.recorders: Recorders | None = None
        self.costs: Costs | None = None  # while it is armed
        self.merger: Merger | None = None  # once nothing is recorded any more
        self.pair_cost: int | None = None  # ns of the two probes of a call
        self.event_cost: int | None = None  # ns of an event without a stack
        self.hits: dict[str, int] = {}
        self.misses: dict[str, int] = {}
        self.started = datetime.now(timezone.utc)
        self._stopped = self._unmade = False

    def __enter__(self) -> Recording:
        self._signals = held_signals(self.job.outcome)
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.costs:  # its processes have what the workload waits for the end of
                self.costs.close()
            self.stop()
            self.unmake()
            if self.merger:
                self.merger.close()
            self.made.remove()
            self.job.close()
        finally:
            self._signals.__exit__(None, None, None)

    def arm(self) -> None:
        """Prepare everything, so that all is recorded and the workload waits."""
        job = self.job
        job.state.scratch = [self.made.note]
        job.lock.write()
        self.made.make()
        job.state.scratch = [self.made.note]
        job.lock.write()

        job.expedite(True)
        self.probes.make()
        kind = Overwriting if self.buffer else Perf
        recorders = Recorders(
            job, self.probes, self.made.path, kind, self.data, limited=not self.buffer
        )
        self.recorders = recorders
        if job.plan.graph:
            recorders.start_graph()
        recorders.make_room()
        recorders.make_ring()  # before the workload: who empties it is none of it, by its number
        self.costs = Costs()
        younger = Since(os.getpid() + 1, job.facts.pid_max).condition("common_pid")
        ring = recorders.ring
        event_cost = None
        if ring:
            event_cost = ring.measured(self.costs.event, younger, self.costs.pids)
        if ring and any(event.name == SWITCH for event in job.plan.events):
            job.plan = replace(job.plan, switch_records=ring.misses_switches())
        group = None
        if job.options.caller is not None:
            self.callers.attach(job.options.caller)
        if job.options.command:
            self.callers.fork()
            if any(event.workload for event in job.plan.events):
                group = self.callers.own_cgroup()
        if group is None and not ring and any(event.name == SWITCH for event in job.plan.events):
            assert job.facts.perf is not None
            misses = perf_misses_switches(job.facts.perf, self.made.path)
            job.plan = replace(job.plan, switch_records=misses)
        self.daemons = Daemons(job)
        self.callers.look()
        self._bound_per_task()
        self._start(recorders, group)
        job.expedite(False)
        if self.callers.attached:
            self.callers.attached.look()
            self.daemons.maps += self.callers.attached.maps()
        recorders.resume()
        self._measure(self.costs, recorders, event_cost)
        self.costs.close()
        self.probes.armed()
        self.probes.report_unplaced()
        for mount in check_daemons(job.plan, job.user, bool(job.options.mounts)):
            # As autofs unmounts what nobody uses
            daemon = f"the daemon of {mount.path}, pid {mount.daemon_pid},"
            job.outcome.warnings.append(f"{daemon} ended while the recording was being prepared")
        check_signals()

    def _start(self, recorders: Recorders, group: str | None) -> None:
        """Start perf and ftrace. ``group``: the workload's cgroup."""
        job, data = self.job, recorders.perfs.raw.name
        if self.buffer:
            recorders.room = Sizes(self.buffer, 0)

        def line(perf: Tool, fifos: tuple[str, str]) -> list[str]:
            room, threads = recorders.room, recorders.threads
            argv = command_line(job.plan, perf, data, fifos, room, group, threads)
            return overwriting(argv) if self.buffer else argv

        def task_line(perf: Tool, fifos: tuple[str, str]) -> list[str]:
            assert recorders.perfs.raw_tasks is not None
            name, room, threads = recorders.perfs.raw_tasks.name, recorders.room, recorders.threads
            argv = line_per_task(job.plan, perf, name, fifos, room, self._memory_of(), threads)
            return overwriting(argv) if self.buffer else argv

        recorders.start(line, task_line, self.callers.since, self.costs, self.callers.pids)

    def _measure(self, costs: Costs, recorders: Recorders, event_cost: float | None) -> None:
        """Measure what probes and events cost."""
        plan = self.job.plan
        if any(probe.function == CALIBRATION for probe in plan.probes):
            native.calibrate(CALIBRATIONS)  # what is seen of them is the part inside a call
            self.pair_cost = costs.pair()
        if event_cost is not None:
            self.event_cost = round(event_cost + recorders.thrown_away)
            return
        # All events of round trips are recorded, and none with a stack.
        cheap = {event.name for event in plan.events if not event.stack}
        if plan.by_pid and not recorders.ring and cheap.issuperset(OF_ROUND_TRIPS):
            self.event_cost = round(recorders.perfs.with_switch(costs.recorded_event) or 0) or None

    def _bound_per_task(self) -> None:
        """Replace copies of stacks where they would need too many events: a daemon of a thousand
        threads on a hundred CPUs. Raise Error if the user's own probe set would."""
        job = self.job
        events = [event for event in job.plan.events if event.per_task]
        files = Files(Path("/"))
        tasks = sum(len(files.list(f"/proc/{pid}/task")) for pid in self._memory_of())
        opened = len(events) * tasks * job.facts.cpus
        if opened <= MOST_EVENTS:
            return
        figures = {"threads": tasks, "cpus": job.facts.cpus, "events": opened}
        fix = "fusetools record --call-graph fp -- …"
        reason = Reason(Code.TOO_MANY_THREADS, {}, figures, fix, "off_cpu")
        if any(not event.stack for event in events):
            raise Error("cannot record the daemon by this probe set", reason.why, "--fs libfuse")
        job.missing.append(reason)
        by_frames = (
            replace(event, stack="fp", per_task=False) if event.per_task else event
            for event in job.plan.events
        )
        job.plan = replace(job.plan, events=tuple(by_frames))

    def _memory_of(self) -> list[int]:
        """Return the processes whose memory samples may hold: the daemons, and the workload if its
        stacks are to be copied.

        A user's own probe set reads only daemons that permissions.check_probe_set() has seen.
        """
        job = self.job
        pids = set(job.servers()) - {job.pid}
        if any(event.per_task and not event.stack for event in job.plan.events):
            pids &= {target.mount.daemon_pid for target in job.plan.targets} - {None}
        daemons = [pid for pid in sorted(pids) if started(pid)]
        return [*daemons, *self.callers.pids] if job.options.call_graph == "dwarf" else daemons

    def run(self) -> None:
        """Record until the workload ends, the time is over, or a signal comes."""
        recorders, options = self.recorders, self.job.options
        assert recorders is not None and recorders.perfs.first is not None
        self.owners.look()
        self.started = datetime.now(timezone.utc)
        begin = time.monotonic()
        recorders.begin()
        for quotas in self._quotas.values():
            throttling.renew(Files(Path("/")), quotas)
        self.callers.start()
        slices = None
        if recorders.ring and self.job.plan.in_part:
            tell, recorded = recorders.perfs.tell_of, recorders.ring.recorded
            slices = Slices(self.job.plan, tell, recorded, recorders.sizes)
        limit = None if options.duration is None else begin + options.duration
        wait_for(self.callers, recorders, limit, slices, self.owners)
        self.owners.look()
        self.job.outcome.seconds = time.monotonic() - begin
        settle(self.probes)
        self.stop()
        self.callers.note_end()

    @property
    def _quotas(self) -> dict[str, dict[str, throttling.Quota]]:
        daemons = self.daemons.quotas if self.daemons else {}
        return {"daemon": daemons, "workload": self.callers.quotas}

    def stop(self) -> None:
        """Stop all recorders. Idempotent. unmake() removes what was made for them."""
        if self._stopped:
            return
        self._stopped = True
        job, files = self.job, Files(Path("/"))
        self.hits = self.probes.hits()
        for whose, before in self._quotas.items():
            job.outcome.throttled += throttling.since(files, whose, before)
        self.callers.abandon()
        if self.recorders:
            self.recorders.stop(self._begin_merger)
        self.misses = self.probes.misses()
        if self.daemons:
            self.daemons.check()

    def _begin_merger(self) -> None:
        """Start the process that merges; not before: it would be recorded."""
        with contextlib.suppress(OSError):  # it is tried again
            self.merger = Merger()

    def unmake(self) -> None:
        """Remove ftrace's instance, the probes and the cgroup, once: 0.2 s, in which the recording
        is put together already. Nothing records any more."""
        if self._unmade:
            return
        self._unmade = True
        state = self.job.state
        if self.recorders:
            self.recorders.unmake()
        self.probes.remove()
        if state.cgroup and cgroup.remove(Path(state.cgroup)):
            state.cgroup = ""
        self.job.lock.write()

    def recorded(self) -> Recorded:
        """Return what there is to put together."""
        recorders, daemons = self.recorders, self.daemons
        assert recorders is not None and daemons is not None
        return Recorded(
            raw=recorders.perfs.raw,
            tasks=recorders.perfs.raw_tasks,
            ring=recorders.ring.output if recorders.ring else None,
            graph=recorders.graph.output if recorders.graph else None,
            started=self.started,
            callers=self.callers.pids,
            has_exit_status=self.callers.workload is not None,
            opened=self.callers.opened,
            owners=self.owners,
            daemons=daemons,
            maps=daemons.maps,
            hits=self.hits,
            misses=self.misses,
            lost=recorders.lost,
            pair_cost=self.pair_cost,
            event_cost=self.event_cost,
            span=recorders.span,
        )

    def finish(self) -> Outcome:
        """Put the recording together, and give it its name and its owner."""
        return self.finisher().finish()

    def finisher(self) -> Finisher:
        merger, self.merger = self.merger, None
        ask, unmake = self.callers.asked_to_end, self.unmake
        return Finisher(self.job, self.made, self.recorded(), merger, ask, unmake)


def check_signals() -> None:
    """Look for signals, for the last time before all counts as armed; a later one ends the
    recording. Raise Interrupted if one came."""
    if signal.sigpending() & set(ENDING):
        raise Interrupted("interrupted before the recording began")


def wait_for(
    callers: Callers,
    recorders: Recorders | None,
    limit: float | None = None,
    slices: Slices | None = None,
    owners: Owners | None = None,
) -> None:
    """Wait until ``limit``, the callers' end, or a signal that ends the recording: without a
    workload immediately, else as soon as the workload has had time to end."""
    assert recorders is not None
    step = 0.1 if callers.attached else 1.0
    while not callers.ended:
        if recorders.ended and _halted(callers, recorders):
            return
        left = step if limit is None else min(step, limit - time.monotonic())
        if left <= 0 or recorders.too_large():
            return
        if owners:
            owners.meanwhile()
        if slices and not recorders.died:
            left = min(left, slices.go_on())
        if not callers.pass_on(arrived(left)):
            continue
        if callers.workload is None:
            return
        end = time.monotonic() + callers.patience
        limit = min(end, limit or end)


def _halted(callers: Callers, recorders: Recorders) -> bool:
    """Report that a recorder exited. Return whether to stop waiting."""
    if recorders.halt() and callers.workload:
        why = recorders.why_ended()
        callers.job.warn(f"the recording ended: {why}; the workload goes on")
    return callers.workload is None


def settle(probes: Probes) -> None:
    """Wait until the daemon has answered what the workload left behind (RELEASE, FORGET)."""
    before: dict[str, int] | None = None
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        time.sleep(0.02)
        hits = probes.hits()
        inside = [name for name in hits if hits[name] > hits.get(name + RETURN, 2**63)]
        if hits == before and not inside:
            return
        before = hits
