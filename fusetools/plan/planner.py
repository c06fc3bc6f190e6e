"""The plan of a recording, from a host's facts, probe sets and options: pure functions.

First daemons.targets(): the mounts, the probe set for each, and the daemon's libraries to probe.
The caller reads those libraries' symbols. Then plan(): the probes and the events, by collectors.

How a recording is limited to the workload and the daemons: docs/design/recording-scope.md. The cost
of each kind of event: docs/design/recording-cost.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fusetools.errors import Error
from fusetools.figures import plural
from fusetools.host.facts import HostFacts, Library
from fusetools.names import CALIBRATION, STACK_BYTES
from fusetools.plan.callbacks import Symbols, callbacks
from fusetools.plan.capabilities import NEWER_PERF, steerable
from fusetools.plan.collectors import CLOCK, COLLECTORS, SWITCH, situation
from fusetools.plan.daemons import Target
from fusetools.plan.events import Event, Probe
from fusetools.plan.ftrace import THREADS
from fusetools.plan.options import Count, Options, Stream
from fusetools.reasons import Code, Reason


@dataclass(frozen=True)
class ProbePlan:
    """All that record/ needs.

    ``graph``: functions, or patterns of them, that function_graph records, or leaves out (`!name`);
    ``functions``: the functions it shows, each with its operation ("" for none); ``clock``: "mono",
    or "perf" where ftrace and perf share no other clock.
    """

    targets: tuple[Target, ...]
    probes: tuple[Probe, ...]
    events: tuple[Event, ...]
    kernel_stacks: bool = False  # no user part in any stack
    stack_bytes: int = STACK_BYTES  # of each stack copy
    switch_records: bool = False  # PERF_RECORD_SWITCH in the workload
    in_part: bool = False  # frequent waits have only some of their stacks taken
    by_pid: bool = False  # thread numbers identify the workload in filters (OfWorkload)
    graph: tuple[str, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    clock: str = "mono"
    missing: tuple[Reason, ...] = ()
    expensive: frozenset[str] = (
        frozenset()
    )  # events of probes that take longer than what is measured

    @property
    def recorded(self) -> tuple[Probe, ...]:
        """The probes as the recording shows them: see Probe.apart()."""
        return tuple(one for probe in self.probes for one in probe.apart())

    @property
    def copies(self) -> bool:
        """True if user stacks are copied, to be unwound when the recording ends."""
        return any(event.stack == "dwarf" for event in self.events)

    @property
    def layers(self) -> tuple[str, ...]:
        """The recorded layers, in words to print."""
        names = {event.name for event in self.events}
        entries = {(probe.layer, probe.function) for probe in self.probes if probe.role == "entry"}
        functions = {function for layer, function in entries if layer == "daemon"} - {CALIBRATION}
        in_kernel = {function for layer, function in entries if layer == "kernel"}
        called = {probe.place.rpartition(":")[0] for probe in self.probes if probe.role == "entry"}
        replies = [
            probe
            for probe in self.probes
            if probe.role == "reply" and probe.place.rpartition(":")[0] not in called
        ]
        words = []
        if self.graph or in_kernel:
            words.append(f"{len(self.functions or in_kernel)} kernel functions")
        if "fuse:fuse_request_send" in names or any(probe.role == "begin" for probe in self.probes):
            words.append("requests")
        if functions:
            words.append(plural(len(functions), "callback"))
        if replies:
            words.append("the daemon's replies")
        if CLOCK in names:
            words.append("on-CPU")
        if "sched:sched_switch" in names:
            words.append("off-CPU")
        if "raw_syscalls:sys_enter" in names:
            words.append("system calls")
        return tuple(words)


def plan(
    facts: HostFacts,
    options: Options,
    chosen: Sequence[Target],
    symbols: Symbols,
    calibration: Library | None = None,
    comms: Mapping[int, Sequence[str]] | None = None,
    cgroup: bool = True,
) -> ProbePlan:
    """Return what to record of the ``chosen`` targets on this host.

    ``symbols``: of the daemons' libraries; ``calibration``: the library that exports CALIBRATION;
    ``comms``: the names of each daemon's threads, by its pid; ``cgroup``: a cgroup separates the
    workload from other processes. Raise Error if nothing can be recorded.
    """
    uncommanded = () if steerable(facts.perf) else _uncommanded(facts, options)
    own = callbacks(facts, chosen, symbols, calibration, options.names)
    of = situation(facts, options, own, comms or {}, cgroup)
    parts = [collect(of) for collect in COLLECTORS]
    missing = (*own.missing, *of.missing, *(why for part in parts for why in part.missing))
    missing += uncommanded
    if not any(part.suffices for part in parts):
        raise Error(
            f"nothing of {own.targets[0].mount.path} can be recorded",
            "; ".join(why.text for why in missing[:3]),
            missing[0].fix,
        )
    graph = tuple(pattern for part in parts for pattern in part.graph)
    events = [event for part in parts for event in part.events]
    if of.ftrace:
        # The process of each thread: ftrace shows only thread numbers.
        events.append(Event(THREADS))
        events = [replace(e, ftrace=not (e.stack or e.frequency or e.per_task)) for e in events]
    probes = (*own.probes, *(probe for part in parts for probe in part.probes))
    return ProbePlan(
        targets=own.targets,
        probes=probes,
        events=tuple(replace(e, per_task=True) if e.stack == "dwarf" else e for e in events),
        kernel_stacks=of.options.call_graph == "kernel",
        stack_bytes=options.stack_bytes,
        in_part=of.in_part,
        switch_records=options.callers and of.cgroup and not of.latency and of.has(SWITCH),
        by_pid=of.by_pid,
        graph=graph,
        functions=tuple(function for part in parts for function in part.functions),
        clock="mono" if "mono" in facts.clocks or not graph else "perf",
        missing=missing,
        expensive=frozenset(p.event for p in probes if p.place in symbols.stepped),
    )


def _uncommanded(facts: HostFacts, options: Options) -> tuple[Reason, ...]:
    """Return what is missing as perf takes no commands. Raise Error if nothing works without."""
    version = facts.perf.version if facts.perf else ""
    why = Reason(Code.NO_CONTROL, {"version": version}, fix=NEWER_PERF)
    if isinstance(options.kind, (Stream, Count)):
        what = "count" if isinstance(options.kind, Count) else "show requests"
        raise Error(f"cannot {what} as they happen", why.why, why.fix)
    return (why,)
