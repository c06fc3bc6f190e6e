"""What to record, from a host's facts, probe sets and options: pure functions.

First targets(): the mounts, the probe set for each, and the daemon's libraries to probe. The caller
reads those libraries' symbols. Then plan(): the probes and the events.

How a recording is limited to the workload and the daemons: docs/design/recording-scope.md. The cost
of each kind of event: docs/design/recording-cost.md.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fusetools.errors import Error
from fusetools.figures import plural
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.mounts import is_on
from fusetools.host.words import event_name
from fusetools.names import CALIBRATION
from fusetools.plan import kernel, tasks
from fusetools.plan.capabilities import NO_UPROBES
from fusetools.plan.events import RETURN, Event, Probe
from fusetools.plan.instances import OF_BOTH, THREADS, by_name, by_perf
from fusetools.plan.options import Options
from fusetools.plan.probeset import GENERIC, HELPERS, OFFSET, Group, ProbeSet
from fusetools.plan.registers import fetch
from fusetools.plan.returns import no_returns
from fusetools.reasons import Code, Reason, Value, of_daemon
from fusetools.session import STACK_BYTES

DAEMON_GROUP = "fuse_daemon"
# Samples of what runs: by a timer that every host has, so that they count time. Not 100, so that
# they do not keep step with what happens 100 times a second.
CLOCK = "cpu-clock"
FREQUENCY = 99
# Code that keeps frame pointers in a smaller share of its functions counts as without. On Debian 12
# (without) libraries have 0 to 0.22, ld.so 0.46, perf 0.86; code compiled with them has 1.
FRAME_POINTERS = 0.9

# (name, virtual address, size, file offset) as native.elf_functions returns them
Symbols = Sequence["tuple[str, int, int, int]"]


@dataclass(frozen=True)
class Target:
    """A mount, the probe set for its daemon, and the library of each of the set's groups.

    ``probe_set`` is None if the daemon cannot be probed: ``lacks``. ``otherwise``: other sets that
    fit, in order, in case the libraries have none of the set's functions.
    """

    mount: Mount
    probe_set: ProbeSet | None = None
    groups: tuple[tuple[Group, Library], ...] = ()
    lacks: Reason | None = None
    otherwise: tuple[tuple[ProbeSet, tuple[tuple[Group, Library], ...]], ...] = ()

    @property
    def libraries(self) -> tuple[Library, ...]:
        """The libraries whose symbols plan() needs, each once."""
        pairs = [*self.groups, *(pair for _, groups in self.otherwise for pair in groups)]
        return tuple({library: None for _, library in pairs})


@dataclass(frozen=True)
class ProbePlan:
    """All that record/ needs.

    ``graph``: functions, or patterns of them, that function_graph records, ``functions`` the
    functions it shows, each with its operation ("" for none); ``clock``: "mono", or "perf" where
    ftrace and perf share no other clock.
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
    dear: frozenset[str] = frozenset()  # events of probes that take longer than what is measured

    @property
    def copies(self) -> bool:
        """Whether user stacks are copied, to be unwound when the recording ends."""
        return any(event.stack == "dwarf" for event in self.events)

    @property
    def layers(self) -> tuple[str, ...]:
        """What is recorded, in words to print."""
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


def targets(
    facts: HostFacts, options: Options, sets: Sequence[ProbeSet], chosen: ProbeSet | None = None
) -> tuple[Target, ...]:
    """The mounts to trace and what to probe in each one's daemon.

    ``chosen``: the set that the user named, already reduced by select(); else each mount gets those
    of ``sets`` that match one of its daemon's libraries, up to the generic set, which needs only
    symbols that a library exports. Error: no such mount.
    """
    mounts = _mounts(facts, options)
    fitted = tuple(_target(mount, sets, chosen) for mount in mounts)
    if chosen and not any(target.groups for target in fitted):
        raise Error(
            f"the probe set {chosen.name} fits no daemon here",
            fitted[0].lacks.why if fitted[0].lacks else "",
            "fusetools record --fs libfuse -- …   (any daemon that links libfuse dynamically)"
            if chosen.name != GENERIC and fitted[0].mount.libraries
            else "",
        )
    return fitted


def _mounts(facts: HostFacts, options: Options) -> tuple[Mount, ...]:
    if not facts.mounts:
        raise Error(
            "no FUSE file system is mounted here",
            "",
            "mount one first (autofs mounts when it is used: ls /cvmfs/REPOSITORY)",
        )
    chosen = facts.mounts
    if options.mounts:
        chosen = tuple(dict.fromkeys(mount_of(facts, path) for path in options.mounts))
    if options.pid is not None:
        answered = tuple(mount for mount in chosen if mount.daemon_pid == options.pid)
        if not answered and len(chosen) > 1:
            raise Error(
                f"process {options.pid} serves no known FUSE mount",
                "several file systems are mounted",
                f"say which one is its: --mount PATH --pid {options.pid}",
            )
        chosen = answered or chosen
    return chosen


def mount_of(facts: HostFacts, path: str) -> Mount:
    """The FUSE mount that ``path`` (absolute) lies on: its longest prefix among the mounts."""
    here = [mount for mount in facts.mounts if is_on(path, mount.path)]
    if not here:
        known = ", ".join(mount.path for mount in facts.mounts[:5])
        raise Error(
            f"no FUSE file system is mounted on {path}",
            f"mounted: {known}{' …' if len(facts.mounts) > 5 else ''}",
            f"ls {path}   (where autofs mounts it)",
        )
    return max(here, key=lambda mount: len(mount.path))


def _target(mount: Mount, sets: Sequence[ProbeSet], chosen: ProbeSet | None) -> Target:
    if mount.daemon_pid is None:
        return Target(mount, lacks=_of_daemon(mount, Code.DAEMON_UNKNOWN, {"message": mount.why}))
    if not mount.libraries:
        why = _of_daemon(mount, Code.LIBRARIES_UNREADABLE)
        if mount.why:
            why = _of_daemon(mount, Code.DAEMON_UNKNOWN, {"message": mount.why})
        return Target(mount, lacks=why)
    fits = []
    for probe_set in [chosen] if chosen else sets:
        probe_set = probe_set if chosen else select(probe_set, ())
        groups = tuple(pair for group in probe_set.groups for pair in _files(group, mount))
        # Helpers are in a library that others use, too.
        if any(group.role not in HELPERS for group, _ in groups):
            fits.append((probe_set, groups))
            if probe_set.name == GENERIC and not _by_program(*groups[0]):
                break
    if fits:
        (probe_set, groups), *rest = fits
        return Target(mount, probe_set, groups, otherwise=tuple(rest))
    if chosen:
        patterns = (g.library.pattern for g in chosen.groups if g.role not in HELPERS and g.library)
        about = {**_who(mount), "patterns": tuple(patterns)}
        return Target(mount, lacks=_of_daemon(mount, Code.LIBRARY_ABSENT, about))
    return Target(mount, lacks=_of_daemon(mount, Code.DAEMON_UNSUPPORTED, _who(mount)))


def _of_daemon(
    mount: Mount, code: Code, subject: Mapping[str, Value] | None = None, fix: str = ""
) -> Reason:
    """Why no call of a mount's daemon can be recorded."""
    about = {"part": "daemon", "path": mount.path, **(subject or {})}
    return Reason(code, about, fix=fix, layer="daemon")


def _who(mount: Mount) -> dict[str, Value]:
    return {"comm": mount.comm or "", "pid": mount.daemon_pid or 0}


def _files(group: Group, mount: Mount) -> list[tuple[Group, Library]]:
    """The daemon's files that a group matches."""
    files = [
        library
        for library in mount.libraries
        if group.library and group.library.fullmatch(os.path.basename(library.path))
    ]
    if files and group.uses:
        imports = {n for other in mount.libraries if other not in files for n in other.imports}
        if imports and not any(group.uses.fullmatch(name) for name in imports):
            return []
    if not files and group.program:
        files = [library for library in mount.libraries if library.path == mount.program]
    return [(group, library) for library in files]


def select(probe_set: ProbeSet, extra: Sequence[str]) -> ProbeSet:
    """The set with its usual groups and the optional groups that ``extra`` names."""
    names = [group.name for group in probe_set.groups]
    for name in extra:
        if name not in names:
            raise Error(
                f"the probe set {probe_set.name} has no group {name}",
                f"its groups: {', '.join(names)}",
            )
    groups = tuple(g for g in probe_set.groups if not g.optional or g.name in extra)
    return replace(probe_set, groups=groups)


def plan(
    facts: HostFacts,
    options: Options,
    chosen: Sequence[Target],
    symbols: Mapping[str, Symbols],
    demangle: Mapping[str, str],
    calibration: Library | None = None,
    comms: Mapping[int, Sequence[str]] | None = None,
    cgroup: bool = True,
    unreadable: Mapping[str, str] | None = None,
) -> ProbePlan:
    """What to record of the ``chosen`` targets on this host.

    ``symbols``: the functions of each library, by its host_path; ``demangle``: mangled name ->
    plain name; ``calibration``: the library that exports CALIBRATION; ``comms``: the names of each
    daemon's threads, by its pid; ``cgroup``: a cgroup separates the workload from other processes;
    ``unreadable``: why a library's symbols could not be read, by its host_path. Error: nothing can
    be recorded.
    """
    probes: list[Probe] = []
    missing: list[Reason] = []
    settled = []
    nameless: list[int] = []  # connections
    for target in chosen:
        if target.groups:
            target, new, why = _settled(facts, target, symbols, demangle, unreadable or {})
            probes += new
            if not _tell_names(new):
                nameless.append(target.mount.connection)
            missing += [lack for lack in dict.fromkeys(why) if lack not in missing]
        else:
            assert target.lacks is not None
            missing.append(target.lacks)
            nameless.append(target.mount.connection)
        settled.append(target)
    chosen = settled
    of_kernel = kernel.names(facts, nameless if options.names else (), options.backend)
    missing += _shared(facts, chosen)
    if facts.dynamic_events and "uprobe" not in facts.dynamic_events:
        probes = []
        missing.append(NO_UPROBES)
    stripped = [why for why in missing if why.code is Code.STRIPPED]
    if stripped and not probes:
        raise Error(f"cannot probe the {stripped[0].text}", "", stripped[0].fix)
    if not options.names:
        probes = [probe for probe in probes if probe.role not in ("inode", "listed")]
    probes = _named_apart(probes)
    if probes and calibration:
        probes += _calibration(facts, calibration, symbols)

    events: list[Event] = []
    mounts = [target.mount for target in chosen]
    daemons = tasks.comms_of(mounts, comms or {})
    # The unwinder supports only x86-64.
    unwindable = options.call_graph == "auto" and facts.arch == "x86_64"
    copied = [mount for mount in mounts if unwindable and _needs_copies(mount)]
    of_user = any(target.probe_set and target.probe_set.own for target in chosen)
    own = {probe.event for probe in probes if of_user and probe.function != CALIBRATION}
    have = set(facts.tracepoints)
    workload = options.callers
    latency = options.detail == "latency"
    # A process that already runs stays in its own cgroup, with its limits.
    cgroup = cgroup and bool(options.command)
    by_pid = workload and not cgroup and facts.pid_max >= tasks.PIDS and not facts.pid_namespace
    connections = [target.mount.connection for target in chosen]
    # A caller's wait has the same stack as its request's beginning, and nobody waits while it is
    # recorded. Without the waits only the beginning shows that stack.
    begins = options.detail == "stacks" and not (workload and "sched:sched_switch" in have)
    counts = options.counts
    ours = kernel.plan(facts, connections, options.backend, options.functions, begins, counts)
    if not options.usual_functions and options.backend == "auto" and not options.functions:
        ours = kernel.without_functions(ours)
    ftrace = options.to_file and not by_perf(facts)
    # Its instance knows no cgroups: there, thread numbers identify the workload.
    ftrace &= latency or not workload or facts.pid_max >= tasks.PIDS
    if workload and not ftrace and options.call_graph == "dwarf":
        # Here only cgroups or names identify the workload, which is too little for copies.
        options, copied = replace(options, call_graph="auto"), mounts
        missing.append(Reason(Code.NO_COPIES_APART, layer="off_cpu"))
    in_part = ftrace and (options.detail, options.call_graph) == ("stacks", "auto")
    in_part &= by_name(facts)
    if not latency:
        of_copied = tasks.comms_of(copied, comms or {})
        # A daemon that may call into another traced mount needs all of its calls; so does one of 32
        # bits, whose calls have other numbers.
        few = options.detail == "stages" and len(mounts) == 1 and not narrow(mounts[0])
        if ftrace:
            cgroup, by_pid = False, workload
        task_events = partial(tasks.task_events, facts.arch, daemons, options)
        scoped = task_events(of_copied, few, cgroup, by_pid)
        if ftrace:
            # ftrace records all, without stacks; perf takes the stacks. perf selects an event by
            # its name, and takes the first of that name.
            stacks = [it for how in ("fp", "dwarf") for it in scoped if it[1].stack == how]
            if in_part and facts.arch == "x86_64":
                stacks += tasks.entries([comm for comm in daemons if comm not in of_copied])
            of_perf = {name for name, _ in stacks if name not in OF_BOTH}
            rest = task_events((), few, cgroup, by_pid, stacks=False)
            scoped = stacks + [it for it in rest if it[0] not in of_perf]
        events += [event for name, event in scoped if name in have]
    named = facts.kallsyms_fuse
    if not counts and (not named or any(name.startswith("fuse_uring_") for name in named)):
        events += [event for event in tasks.of_rings(daemons, latency) if event.name in have]
    # Until a call ends, its stack is the stack at its entry.
    if options.detail == "stacks" and {"raw_syscalls:sys_enter", "raw_syscalls:sys_exit"} <= have:
        events += [event for event in tasks.streams(copied, comms or {}) if event.name in have]
    if latency:
        pass  # not requested
    elif "sched:sched_switch" not in have:
        missing.append(Reason(Code.NO_SCHED_SWITCH, layer="off_cpu"))
    elif not workload:
        fix = "fusetools record -- WORKLOAD   (or --attach PID)"
        missing.append(Reason(Code.NO_WORKLOAD, fix=fix, layer="syscall"))
    elif not (cgroup or by_pid):
        missing.append(Reason(Code.NO_CGROUP if options.command else Code.NO_THREAD_FILTER))
    if "raw_syscalls:sys_enter" not in have and not latency:
        missing.append(Reason(Code.NO_RAW_SYSCALLS, layer="syscall"))
    events += [*ours.events, *of_kernel[1]]
    events += [Event(probe.event, per_task=probe.event in own) for probe in probes]
    if options.detail == "stacks":
        how = "dwarf" if options.call_graph == "dwarf" else "fp"
        events.append(
            Event(CLOCK, stack=how, frequency=min(FREQUENCY, facts.sample_rate or FREQUENCY))
        )
    missing += ours.missing
    if not ours.events and not ours.graph and not probes:
        first = missing[0]
        raise Error(
            f"nothing of {chosen[0].mount.path} can be recorded",
            "; ".join(why.text for why in missing[:3]),
            first.fix,
        )
    if ftrace:
        # The process of each thread: ftrace shows only thread numbers.
        events.append(Event(THREADS))
        events = [replace(e, ftrace=not (e.stack or e.frequency or e.per_task)) for e in events]
    events = [replace(e, per_task=True) if e.stack == "dwarf" else e for e in events]
    return ProbePlan(
        targets=tuple(chosen),
        probes=(*probes, *ours.probes, *of_kernel[0]),
        events=tuple(events),
        kernel_stacks=options.call_graph == "kernel",
        stack_bytes=options.stack_bytes,
        in_part=in_part,
        switch_records=workload and cgroup and not latency and "sched:sched_switch" in have,
        by_pid=by_pid,
        graph=ours.graph,
        functions=ours.functions,
        clock="mono" if "mono" in facts.clocks or not ours.graph else "perf",
        missing=tuple(missing),
    )


def _tell_names(probes: Sequence[Probe]) -> bool:
    """Whether they show each file's name, and the inode that it leads to."""
    inodes = any(probe.role == "inode" or probe.function == "fuse_reply_entry" for probe in probes)
    return inodes and any("name" in dict(probe.arguments) for probe in probes)


def _settled(
    facts: HostFacts,
    target: Target,
    symbols: Mapping[str, Symbols],
    demangle: Mapping[str, str],
    unreadable: Mapping[str, str],
) -> tuple[Target, list[Probe], list[Reason]]:
    """The target with its first probe set whose functions exist, and the probes."""
    assert target.probe_set is not None
    lacking: list[Reason] = []
    for probe_set, groups in ((target.probe_set, target.groups), *target.otherwise):
        tried = replace(target, probe_set=probe_set, groups=groups, otherwise=())
        probes, missing = _probes(facts, tried, symbols, demangle, unreadable)
        calls = any(group.role == "call" for group, _ in groups) and not _is_generic(tried)
        wanted = "entry" if calls else "reply"
        if any(probe.role == wanted for probe in probes):
            calls = any(probe.role == "entry" for probe in probes)
            return tried, probes, [*(_instead(lack, calls) for lack in lacking), *missing]
        # A program of any name need not have them: nothing to report.
        if not target.otherwise or not any(
            _by_program(group, library) for group, library in groups
        ):
            lacking = lacking or missing
    unknown = _of_daemon(target.mount, Code.DAEMON_UNSUPPORTED, _who(target.mount))
    return target, [], lacking or [unknown]


def _by_program(group: Group, library: Library) -> bool:
    name = os.path.basename(library.path)
    return group.library is None or not group.library.fullmatch(name)


def _instead(lacking: Reason, calls: bool) -> Reason:
    """What is missing where the library's replies are recorded instead, or its callbacks, too."""
    subject = dict(lacking.subject)
    if of_daemon(lacking):
        subject["part"] = "own_callbacks" if calls else "callbacks"
    fix = lacking.fix.splitlines()[-1] if lacking.fix else ""
    return replace(lacking, subject=subject, fix=fix)


def _probes(
    facts: HostFacts,
    target: Target,
    symbols: Mapping[str, Symbols],
    demangle: Mapping[str, str],
    unreadable: Mapping[str, str],
) -> tuple[list[Probe], list[Reason]]:
    probes: list[Probe] = []
    missing: list[Reason] = []
    mount = target.mount
    for group, library in target.groups:
        before = len(probes)
        if why := _unreadable(mount, library, unreadable):
            missing.append(why)
            continue
        refused = no_returns(facts, library, target.mount)
        functions = symbols.get(library.host_path, ())
        if group.unless and any(group.unless.fullmatch(name) for name, *_ in functions):
            continue
        for name, address, _, offset in functions:
            base, variants = _variants(name) if not library.go else (name, set())
            plain = demangle.get(name, base)
            match = group.function.fullmatch(base) or group.function.fullmatch(plain)
            if not match or "part" in variants:
                continue
            key = match[1] if group.function.groups else ""
            if group.role == "call" and key not in group.operations:
                continue
            function = short_name(plain)
            probe = Probe(
                event=f"{DAEMON_GROUP}:{event_name(function)}",
                kind="p",
                place=f"{library.host_path}:0x{offset:x}",
                layer="daemon",
                function=function,
                operation=group.operations.get(key, ""),
                role="entry" if group.role == "call" else group.role,
                address=address,
                arguments=()
                if variants & {"isra", "constprop"}
                else _arguments(group, key, facts, library),
            )
            probes.append(probe)
            if group.role == "call" and group.returns and not refused:
                probes.append(
                    replace(
                        probe, event=probe.event + RETURN, kind="r", role="return", arguments=()
                    )
                )
        if len(probes) == before and group.role in HELPERS:
            others = (other for other, _ in target.groups if other is not group)
            if any(other.unless and other.role == group.role for other in others):
                continue  # it stands in for this one, and says what is missing
            file = {"path": mount.path, "file": os.path.basename(library.path)}
            no_inodes = Reason(Code.NO_INODES, file, layer="names")
            no_requests = Reason(Code.NO_REQUESTS_OF_CALLBACKS, file, layer="daemon")
            missing.append(no_requests if group.role == "taken" else no_inodes)
        elif len(probes) == before and group.role == "call" and _is_generic(target):
            pass  # a libfuse whose handlers are not known: the replies are what is promised
        elif len(probes) == before:
            missing.append(_stripped(target, group, library))
        elif refused and group.role == "call" and group.returns:
            missing.append(refused)
    if all(probe.role in HELPERS for probe in probes):
        probes = []
    return probes, missing


def _unreadable(mount: Mount, library: Library, unreadable: Mapping[str, str]) -> Reason | None:
    fix = "mount it again"
    if not library.host_path:
        return _of_daemon(mount, Code.FILE_UNNAMED, {"file": library.path}, fix)
    if message := unreadable.get(library.host_path):
        about = {"file": library.path, "message": message}
        return _of_daemon(mount, Code.FILE_UNREADABLE, about, fix)
    return None


def _shared(facts: HostFacts, chosen: Sequence[Target]) -> Iterator[Reason]:
    """Mounts that are not recorded, of processes that serve recorded ones, too."""
    recorded = {target.mount.connection for target in chosen}
    for pid in dict.fromkeys(target.mount.daemon_pid for target in chosen):
        own = [target.mount for target in chosen if target.mount.daemon_pid == pid]
        others = {m.connection: m for m in reversed(facts.mounts) if m.daemon_pid == pid}
        beside = [others[c].path for c in sorted(others.keys() - recorded, key=str)]
        if pid is None or not beside:
            continue
        paths = " ".join(f"--mount {shlex.quote(p)}" for p in (*(m.path for m in own), *beside))
        yield Reason(
            Code.DAEMON_SHARED,
            {**_who(own[0]), "others": tuple(beside)},
            fix=f"fusetools record {paths} -- …",
            layer="daemon",
        )


# What compilers append to a function's name: it is local to a link (llvm, lto_priv), its arguments
# have moved (isra, constprop), it is only a part of the function, which calls it (part).
_VARIANT = re.compile(r"\.(part|isra|constprop|llvm|lto_priv)(?:\.\d+)?(?=\.|$)")


def _variants(name: str) -> tuple[str, set[str]]:
    """A symbol's name without the suffixes of compilers, and these suffixes."""
    return _VARIANT.sub("", name), set(_VARIANT.findall(name))


def short_name(function: str) -> str:
    """A function's name without its scope: C++'s and Rust's "::", Go's directories.

    Text in brackets is not split: template arguments, Rust's impls.
    """
    depth, begin = 0, 0
    for at, letter in enumerate(function):
        if letter in "<([{":
            depth += 1
        elif letter in ">)]}":
            depth = max(depth - 1, 0)
        elif depth == 0 and (letter == "/" or function.startswith("::", at)):
            begin = at + (1 if letter == "/" else 2)
    return function[begin:] or function


def _arguments(
    group: Group, key: str, facts: HostFacts, library: Library
) -> tuple[tuple[str, str], ...]:
    wanted = {**group.arguments.get("all", {}), **(group.arguments.get(key, {}) if key else {})}
    fetches = []
    abi = group.abi or ("go" if library.go else "c")
    if abi == "go" and not library.go_registers:
        return ()
    file = os.path.basename(library.path)
    offsets = {
        name: str(number)
        for name, rows in group.offsets.items()
        for library_name, number in reversed(rows)
        if library_name.fullmatch(file)
    }
    for name, text in wanted.items():
        if not offsets.keys() >= set(OFFSET.findall(text)):
            continue
        text = OFFSET.sub(lambda match: offsets[match[1]], text)
        value = fetch(text, facts.arch, library.machine, abi)
        if value is not None:
            fetches.append((name, value))
    return tuple(fetches)


def _is_generic(target: Target) -> bool:
    return target.probe_set is not None and target.probe_set.name == GENERIC


def _stripped(target: Target, group: Group, library: Library) -> Reason:
    ways = "install its debug symbols (a package such as NAME-dbgsym or NAME-debuginfo)"
    if not _is_generic(target):
        ways = (
            f"fusetools record --fs {GENERIC} -- …   "
            "(works without symbols; libfuse's callbacks, not the daemon's)\n" + ways
        )
    about = {"file": os.path.basename(library.path), "group": group.name}
    return _of_daemon(target.mount, Code.STRIPPED, {**about, **_who(target.mount)}, ways)


def _named_apart(probes: Sequence[Probe]) -> list[Probe]:
    """Each place once; events with the same name in another file get a number."""
    apart: list[Probe] = []
    seen: set[tuple[str, str]] = set()
    used: set[str] = set()
    # Probes of inodes come last: another daemon's reply probe at that place shows inodes, too.
    for probe in sorted(probes, key=lambda probe: probe.role == "inode"):
        if (probe.kind, probe.place) in seen:
            continue
        seen.add((probe.kind, probe.place))
        stem = probe.event[: -len(RETURN)] if probe.role == "return" else probe.event
        mark = probe.event[len(stem) :]
        number = 1
        while probe.event in used:
            number += 1
            probe = replace(probe, event=f"{stem}_{number}{mark}")
        used.add(probe.event)
        apart.append(probe)
    return apart


def _calibration(facts: HostFacts, library: Library, symbols: Mapping[str, Symbols]) -> list[Probe]:
    if no_returns(facts, library):
        return []
    for name, address, _, offset in symbols.get(library.host_path, ()):
        if name == CALIBRATION:
            entry = Probe(
                event=f"{DAEMON_GROUP}:{CALIBRATION}",
                kind="p",
                place=f"{library.host_path}:0x{offset:x}",
                layer="daemon",
                function=CALIBRATION,
                operation="",
                role="entry",
                address=address,
            )
            return [entry, replace(entry, event=entry.event + RETURN, kind="r", role="return")]
    return []


def narrow(mount: Mount) -> bool:
    """Whether its daemon is a 32-bit program."""
    return any(library.machine in ("i386", "arm") for library in mount.libraries)


def without_frame_pointers(mount: Mount) -> tuple[str, ...]:
    """Names of the daemon's files (program, libraries) without frame pointers."""
    return tuple(
        os.path.basename(library.path)
        for library in mount.libraries
        if library.frame_pointers is not None and library.frame_pointers < FRAME_POINTERS
    )


def _needs_copies(mount: Mount) -> bool:
    """Whether only unwind tables give complete stacks of its daemon's waits. Go's own code has no
    tables but keeps frame pointers, also if linked with a C library that does not."""
    return not any(library.go for library in mount.libraries) and bool(
        without_frame_pointers(mount)
    )
