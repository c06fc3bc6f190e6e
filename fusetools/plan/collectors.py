"""Collectors: each adds a kind of events to a plan, or says why this host cannot record it.

A collector is a pure function of the Situation. Collectors know nothing of each other:
planner.plan() runs them all, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fusetools.host.facts import HostFacts, Mount
from fusetools.names import CALIBRATION
from fusetools.plan import kernel, tasks
from fusetools.plan.callbacks import Callbacks
from fusetools.plan.capabilities import steerable
from fusetools.plan.daemons import needs_copies
from fusetools.plan.events import Event, Probe
from fusetools.plan.ftrace import OF_BOTH, by_name, by_perf
from fusetools.plan.options import Options
from fusetools.reasons import Code, Reason

# Samples of what runs: by a timer that every host has, so that they count time. Not 100, so that
# they do not keep step with what happens 100 times a second.
CLOCK = "cpu-clock"
FREQUENCY = 99
SWITCH = "sched:sched_switch"
SYSCALLS = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit")


@dataclass(frozen=True)
class Situation:
    """The facts that collectors decide from.

    ``comms``: the names of each daemon's threads, by its pid; ``daemons``: all of them; ``copied``:
    mounts of daemons whose stacks are copied; ``cgroup``: the workload has a cgroup of its own;
    ``by_pid``: numbers of threads tell it apart; ``ftrace``: ftrace records events without stacks;
    ``in_part``: frequent waits have only some of their stacks taken; ``missing``: what this
    host cannot do, whatever the collector.
    """

    facts: HostFacts
    options: Options
    callbacks: Callbacks
    comms: Mapping[int, Sequence[str]]
    daemons: tuple[str, ...]
    copied: tuple[Mount, ...]
    cgroup: bool
    by_pid: bool
    ftrace: bool
    in_part: bool
    missing: tuple[Reason, ...] = ()

    @property
    def mounts(self) -> list[Mount]:
        return [target.mount for target in self.callbacks.targets]

    @property
    def connections(self) -> list[int]:
        return [mount.connection for mount in self.mounts]

    @property
    def latency(self) -> bool:
        """True if only requests and callbacks are recorded."""
        return self.options.detail == "latency"

    @property
    def stacks(self) -> bool:
        return self.options.detail == "stacks"

    def has(self, *names: str) -> bool:
        """Return whether the kernel has these tracepoints."""
        return set(names) <= set(self.facts.tracepoints)


@dataclass(frozen=True)
class Part:
    """The addition of a collector to a plan, and what is missing: as in kernel.KernelPlan."""

    probes: tuple[Probe, ...] = ()
    events: Sequence[Event] = ()
    graph: tuple[str, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    missing: Sequence[Reason] = ()
    suffices: bool = False  # a recording of this alone is worth making


Collector = Callable[[Situation], Part]


def situation(
    facts: HostFacts,
    options: Options,
    callbacks: Callbacks,
    comms: Mapping[int, Sequence[str]],
    cgroup: bool,
) -> Situation:
    """Decide how filters distinguish the workload from other processes, and what ftrace records."""
    mounts = [target.mount for target in callbacks.targets]
    latency = options.detail == "latency"
    # Elsewhere programs keep frame pointers, as a rule.
    unwindable = options.call_graph == "auto" and facts.arch == "x86_64"
    copied = [mount for mount in mounts if unwindable and needs_copies(mount)]
    # A process that already runs stays in its own cgroup, with its limits.
    cgroup = cgroup and bool(options.command)
    numbered = facts.pid_max >= tasks.PIDS
    by_pid = options.callers and not cgroup and numbered and not facts.pid_namespace
    # ftrace's instance knows no cgroups: there, thread numbers identify the workload.
    ftrace = options.to_file and not by_perf(facts)
    ftrace &= latency or not options.callers or numbered
    missing = []
    if options.callers and not ftrace and options.call_graph == "dwarf":
        # Here only cgroups or names identify the workload, which is too little for copies.
        options, copied = replace(options, call_graph="auto"), mounts
        missing.append(Reason(Code.NO_COPIES_APART, layer="off_cpu"))
    if ftrace and not latency:
        cgroup, by_pid = False, options.callers
    return Situation(
        facts=facts,
        options=options,
        callbacks=callbacks,
        comms=comms,
        daemons=tasks.comms_of(mounts, comms),
        copied=tuple(copied),
        cgroup=cgroup,
        by_pid=by_pid,
        ftrace=ftrace,
        in_part=ftrace
        and steerable(facts.perf)
        and (options.detail, options.call_graph) == ("stacks", "auto")
        and by_name(facts),
        missing=tuple(missing),
    )


def of_tasks(of: Situation) -> Part:
    """Switches, wake-ups and system calls of the workload and the daemons."""
    if of.latency:
        return Part()
    of_copied = tasks.comms_of(of.copied, of.comms)
    task_events = partial(tasks.task_events, of.facts.arch, of.daemons, of.options)
    scoped = task_events(of_copied, of.cgroup, of.by_pid)
    if of.ftrace:
        # ftrace records all, without stacks; perf takes the stacks. perf selects an event by its
        # name, and takes the first of that name.
        stacks = [it for how in ("fp", "dwarf") for it in scoped if it[1].stack == how]
        if of.in_part and of.facts.arch == "x86_64":
            stacks += tasks.entries([comm for comm in of.daemons if comm not in of_copied])
        of_perf = {name for name, _ in stacks if name not in OF_BOTH}
        rest = task_events((), of.cgroup, of.by_pid, stacks=False)
        scoped = stacks + [it for it in rest if it[0] not in of_perf]
    missing = []
    if not of.has(SWITCH):
        missing.append(Reason(Code.NO_SCHED_SWITCH, layer="off_cpu"))
    elif not of.options.callers:
        fix = "fusetools record -- WORKLOAD   # or --attach PID"
        missing.append(Reason(Code.NO_WORKLOAD, fix=fix, layer="syscall"))
    elif not (of.cgroup or of.by_pid):
        missing.append(Reason(Code.NO_CGROUP if of.options.command else Code.NO_THREAD_FILTER))
    if not of.has(SYSCALLS[0]):
        missing.append(Reason(Code.NO_RAW_SYSCALLS, layer="syscall"))
    return Part(events=[event for name, event in scoped if of.has(name)], missing=missing)


def of_rings(of: Situation) -> Part:
    """Collect the events of the daemons' rings of io_uring, where they may carry requests."""
    named = of.facts.kallsyms_fuse
    if of.options.counts or (named and not any(n.startswith("fuse_uring_") for n in named)):
        return Part()
    rings = tasks.of_rings(of.daemons, of.latency)
    return Part(events=[event for event in rings if of.has(event.name)])


def of_streams(of: Situation) -> Part:
    """Collect the daemons' reads from sockets and pipes, with copies of their stacks.

    Until a call ends, its stack is the stack at its entry.
    """
    if not of.stacks or not of.has(*SYSCALLS):
        return Part()
    reads = tasks.streams(of.copied, of.comms)
    return Part(events=[event for event in reads if of.has(event.name)])


def of_kernel(of: Situation) -> Part:
    """Collect the stages of requests, and the kernel's functions."""
    options = of.options
    # A caller's wait has the same stack as its request's beginning, and nobody waits while it is
    # recorded. Without the waits only the beginning shows that stack.
    begins = of.stacks and not (options.callers and of.has(SWITCH))
    made = kernel.plan(
        of.facts, of.connections, options.backend, options.functions, begins, options.counts
    )
    if not options.usual_functions and options.backend == "auto" and not options.functions:
        made = kernel.without_functions(made)
    suffices = bool(made.events or made.graph)
    return Part(made.probes, made.events, made.graph, made.functions, made.missing, suffices)


def of_names(of: Situation) -> Part:
    """Collect the names of files, on mounts whose daemons' probes do not show them."""
    nameless = of.callbacks.nameless if of.options.names else ()
    probes, events = kernel.names(of.facts, nameless, of.options.backend)
    return Part(probes, events)


def of_callbacks(of: Situation) -> Part:
    """Collect the probes in daemons. A user's own probe set may read memory: its events are per
    task."""
    own = any(t.probe_set and t.probe_set.own for t in of.callbacks.targets)
    return Part(
        events=[
            Event(probe.event, per_task=own and probe.function != CALIBRATION)
            for probe in of.callbacks.probes
        ],
        suffices=bool(of.callbacks.probes),
    )


def of_cpus(of: Situation) -> Part:
    """Collect samples of what runs."""
    if not of.stacks:
        return Part()
    how = "dwarf" if of.options.call_graph == "dwarf" else "fp"
    frequency = min(FREQUENCY, of.facts.sample_rate or FREQUENCY)
    return Part(events=[Event(CLOCK, stack=how, frequency=frequency)])


COLLECTORS: tuple[Collector, ...] = (
    of_tasks,
    of_rings,
    of_streams,
    of_kernel,
    of_names,
    of_callbacks,
    of_cpus,
)
