"""From a host's facts, probe sets and a request to what is recorded: pure functions.

First targets(): which mounts, which probe set for each, in which of the daemon's libraries. The
caller reads those libraries' symbols. Then plan(): the probes and the events.

How a recording is kept to the workload and the daemons: docs/design/recording-scope.md. What each
kind of event costs: docs/design/recording-cost.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fusetools.errors import Error
from fusetools.figures import plural
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.mounts import is_on
from fusetools.host.words import event_name
from fusetools.missing import Missing
from fusetools.names import CALIBRATION
from fusetools.plan import kernel, tasks
from fusetools.plan.capabilities import NO_UPROBES
from fusetools.plan.events import DURATIONS, RETURN, Event, Probe
from fusetools.plan.instances import OF_BOTH, THREADS, by_name, by_perf
from fusetools.plan.probeset import GENERIC, HELPERS, Group, ProbeSet
from fusetools.plan.registers import fetch
from fusetools.plan.request import Count, Request
from fusetools.plan.returns import no_returns
from fusetools.session import STACK_BYTES

DAEMON_GROUP = "fuse_daemon"
# Samples of what runs: by a timer that every host has, so that they count time. A prime's
# neighbour, so that they do not keep step with what happens 100 times a second.
CLOCK = "cpu-clock"
FREQUENCY = 99
# Code that keeps frame pointers in a smaller share of its functions counts as without. On Debian 12
# (without) libraries have 0 to 0.22, ld.so 0.46, perf 0.86; what is compiled with them has 1.
FRAME_POINTERS = 0.9

# (name, virtual address, size, file offset) as native.elf_functions gives them
Symbols = Sequence["tuple[str, int, int, int]"]


@dataclass(frozen=True)
class Target:
    """A mount, the probe set for its daemon, and the library of each of the set's groups.

    ``probe_set`` is None where the daemon cannot be probed: ``why``. ``otherwise``: what else fits,
    in order, where the libraries turn out to have none of the set's functions.
    """

    mount: Mount
    probe_set: ProbeSet | None = None
    groups: tuple[tuple[Group, Library], ...] = ()
    why: str = ""
    otherwise: tuple[tuple[ProbeSet, tuple[tuple[Group, Library], ...]], ...] = ()

    @property
    def libraries(self) -> tuple[Library, ...]:
        """Whose symbols plan() needs, each once."""
        pairs = [*self.groups, *(pair for _, groups in self.otherwise for pair in groups)]
        return tuple({library: None for _, library in pairs})


@dataclass(frozen=True)
class ProbePlan:
    """All that record/ needs to know.

    ``graph``: functions, or patterns of them, that function_graph records, ``functions`` those it
    will show with the operation of each ("" for none); ``clock``: "mono", or "perf" where ftrace
    has no other that perf has, too.
    """

    targets: tuple[Target, ...]
    probes: tuple[Probe, ...]
    events: tuple[Event, ...]
    kernel_stacks: bool = False  # all stacks without the user's part
    stack_bytes: int = STACK_BYTES  # of each copy of a stack
    switch_records: bool = False  # PERF_RECORD_SWITCH in the workload
    in_part: bool = False  # of waits that are many not each has its stack taken
    by_pid: bool = False  # filters have "FIELD >= WORKLOAD", which only record/ can fill in
    graph: tuple[str, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    clock: str = "mono"
    missing: tuple[Missing, ...] = ()

    @property
    def copies(self) -> bool:
        """Whether user stacks are copied, to be unwound at the recording's end."""
        return any(event.stack == "dwarf" for event in self.events)

    @property
    def layers(self) -> tuple[str, ...]:
        """What is recorded, in the words of the line that says so."""
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
        said = []
        if self.graph or in_kernel:
            said.append(f"{len(self.functions or in_kernel)} kernel functions")
        if "fuse:fuse_request_send" in names or any(one.role == "begin" for one in self.probes):
            said.append("requests")
        if functions:
            said.append(plural(len(functions), "callback"))
        if replies:
            said.append("the daemon's replies")
        if CLOCK in names:
            said.append("on-CPU")
        if "sched:sched_switch" in names:
            said.append("off-CPU")
        if "raw_syscalls:sys_enter" in names:
            said.append("system calls")
        return tuple(said)


def targets(
    facts: HostFacts, request: Request, sets: Sequence[ProbeSet], chosen: ProbeSet | None = None
) -> tuple[Target, ...]:
    """The mounts to trace and what to probe in each one's daemon.

    ``chosen``: the set that the user named, already cut down by select(); else each mount gets
    those of ``sets`` that know one of its daemon's libraries, up to the generic one, which needs no
    symbols but those that a library exports. Error: no such mount.
    """
    mounts = _mounts(facts, request)
    found = tuple(_target(mount, sets, chosen) for mount in mounts)
    if chosen and not any(target.groups for target in found):
        raise Error(
            f"the probe set {chosen.name} fits no daemon here",
            found[0].why,
            "fusetools record --fs libfuse -- …   (any daemon that links libfuse dynamically)"
            if chosen.name != GENERIC and found[0].mount.libraries
            else "",
        )
    return found


def _mounts(facts: HostFacts, request: Request) -> tuple[Mount, ...]:
    if not facts.mounts:
        raise Error(
            "no FUSE file system is mounted here",
            "",
            "mount one first (autofs mounts when it is used: ls /cvmfs/REPOSITORY)",
        )
    chosen = facts.mounts
    if request.mounts:
        chosen = tuple(dict.fromkeys(_mount_of(facts, path) for path in request.mounts))
    if request.pid is not None:
        answered = tuple(mount for mount in chosen if mount.daemon_pid == request.pid)
        if not answered and len(chosen) > 1:
            raise Error(
                f"process {request.pid} serves no known FUSE mount",
                "several file systems are mounted",
                f"say which one is its: --mount PATH --pid {request.pid}",
            )
        chosen = answered or chosen
    return chosen


def _mount_of(facts: HostFacts, path: str) -> Mount:
    """The FUSE mount that ``path`` (absolute) lies on: the longest that it begins with."""
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
        return Target(mount, why=mount.why)
    if not mount.libraries:
        return Target(mount, why=mount.why or "its libraries cannot be read")
    fits = []
    for probe_set in [chosen] if chosen else sets:
        probe_set = probe_set if chosen else select(probe_set, ())
        groups = tuple(pair for group in probe_set.groups for pair in _files(group, mount))
        # What only helps is in a library that others use, too.
        if any(group.role not in HELPERS for group, _ in groups):
            fits.append((probe_set, groups))
            if probe_set.name == GENERIC and not _by_program(*groups[0]):
                break
    if fits:
        (probe_set, groups), *rest = fits
        return Target(mount, probe_set, groups, otherwise=tuple(rest))
    who = f"{mount.comm} (pid {mount.daemon_pid})"
    if chosen:
        patterns = [g.library.pattern for g in chosen.groups if g.role not in HELPERS and g.library]
        return Target(mount, why=f"{who} has no library {' or '.join(patterns)}")
    return Target(mount, why=f"{who} {_UNKNOWN}")


_UNKNOWN = "does not use libfuse's library for requests, and no probe set knows its functions"


def _files(group: Group, mount: Mount) -> list[tuple[Group, Library]]:
    """The daemon's files that a group is about."""
    found = [
        library
        for library in mount.libraries
        if group.library and group.library.fullmatch(os.path.basename(library.path))
    ]
    if found and group.uses:
        imports = {name for one in mount.libraries if one not in found for name in one.imports}
        if imports and not any(group.uses.fullmatch(name) for name in imports):
            return []
    if not found and group.program:
        found = [library for library in mount.libraries if library.path == mount.program]
    return [(group, library) for library in found]


def select(probe_set: ProbeSet, extra: Sequence[str]) -> ProbeSet:
    """The set with its usual groups and those optional ones that ``extra`` names."""
    names = [group.name for group in probe_set.groups]
    for name in extra:
        if name not in names:
            raise Error(
                f"the probe set {probe_set.name} has no group {name}",
                f"its groups: {', '.join(names)}",
            )
    kept = tuple(g for g in probe_set.groups if not g.optional or g.name in extra)
    return replace(probe_set, groups=kept)


def plan(
    facts: HostFacts,
    request: Request,
    found: Sequence[Target],
    symbols: Mapping[str, Symbols],
    demangle: Mapping[str, str],
    calibration: Library | None = None,
    comms: Mapping[int, Sequence[str]] | None = None,
    cgroup: bool = True,
    unreadable: Mapping[str, str] | None = None,
) -> ProbePlan:
    """What to record of ``found``, out of what the host has.

    ``symbols``: the functions of each library, by its host_path; ``demangle``: the plain name of
    each of their names that is mangled; ``calibration``: the library that exports CALIBRATION;
    ``comms``: the names of each daemon's threads, by its pid; ``cgroup``: the workload can be told
    from others; ``unreadable``: why a library's symbols could not be read, by its host_path. Error:
    nothing of it can be recorded.
    """
    probes: list[Probe] = []
    missing: list[Missing] = []
    settled = []
    for target in found:
        if target.groups:
            target, new, why = _settled(facts, target, symbols, demangle, unreadable or {})
            probes += new
            missing += [one for one in dict.fromkeys(why) if one not in missing]
        else:
            what = f"daemon of {target.mount.path}"
            missing.append(Missing(what, target.why, layer="daemon"))
        settled.append(target)
    found = settled
    if facts.dynamic_events and "uprobe" not in facts.dynamic_events:
        probes = []
        missing.append(Missing("daemon", *NO_UPROBES, layer="daemon"))
    if not probes and any(isinstance(why, _Stripped) for why in missing):
        stripped = next(why for why in missing if isinstance(why, _Stripped))
        raise Error(f"cannot probe the {stripped.what}: {stripped.why}", "", stripped.fix)
    if not request.names:
        probes = [probe for probe in probes if probe.role != "inode"]
    probes = _named_apart(probes)
    if probes and calibration:
        probes += _calibration(facts, calibration, symbols)

    events: list[Event] = []
    mounts = [target.mount for target in found]
    daemons = tasks.comms_of(mounts, comms or {})
    # Only for x86-64 is there an unwinder.
    unwindable = request.call_graph == "auto" and facts.arch == "x86_64"
    copied = [mount for mount in mounts if unwindable and _needs_copies(mount)]
    have = set(facts.tracepoints)
    workload = request.callers
    latency = request.detail == "latency"
    # A process that runs already stays in its own cgroup, with its limits.
    cgroup = cgroup and bool(request.command)
    by_pid = workload and not cgroup and facts.pid_max >= tasks.PIDS and not facts.pid_namespace
    connections = [target.mount.connection for target in found]
    # A caller's wait has the stack of its request's beginning, and is recorded while nobody waits
    # for it. Without the waits only the beginning tells.
    begins = request.detail == "stacks" and not (workload and "sched:sched_switch" in have)
    counts = isinstance(request, Count)
    ours = kernel.plan(facts, connections, request.backend, request.functions, begins, counts)
    if not request.functions_too and request.backend == "auto" and not request.functions:
        ours = kernel.without_functions(ours)
    ftrace = request.kept and not by_perf(facts)
    # Of its instance no cgroup is a part: there the workload is known by numbers of threads.
    ftrace &= latency or not workload or facts.pid_max >= tasks.PIDS
    in_part = ftrace and (request.detail, request.call_graph) == ("stacks", "auto")
    in_part &= by_name(facts)
    if not latency:
        of_copied = tasks.comms_of(copied, comms or {})
        # A daemon that may be a caller, of another mount that is traced, needs all of its calls.
        few = request.detail == "stages" and len(mounts) == 1
        if ftrace:
            cgroup, by_pid = False, workload
        task_events = partial(tasks.task_events, facts.arch, daemons, request)
        found_events = task_events(of_copied, few, cgroup, by_pid)
        if ftrace:
            # It is told of all, without stacks; perf takes those. perf is told of an event by its
            # name, and finds the first one of it.
            stacks = [it for how in ("fp", "dwarf") for it in found_events if it[1].stack == how]
            if in_part and facts.arch == "x86_64":
                stacks += tasks.entries([one for one in daemons if one not in of_copied])
            of_perf = {name for name, _ in stacks if name not in OF_BOTH}
            rest = task_events((), few, cgroup, by_pid, stacks=False)
            found_events = stacks + [it for it in rest if it[0] not in of_perf]
        events += [event for name, event in found_events if name in have]
    # Until a call ends its stack is that of its entry.
    if request.detail == "stacks" and {"raw_syscalls:sys_enter", "raw_syscalls:sys_exit"} <= have:
        events += [event for event in tasks.streams(copied, comms or {}) if event.name in have]
    if latency:
        pass  # not asked for
    elif "sched:sched_switch" not in have:
        lack = "the kernel shows no tracepoint sched:sched_switch"
        missing.append(Missing("off-CPU", lack, layer="off_cpu"))
    elif not workload:
        missing.append(
            Missing(
                "off-CPU and system calls of the callers",
                "there is no workload: only the daemon's are recorded",
                "fusetools record -- WORKLOAD   (or --attach PID)",
                "syscall",
            )
        )
    elif not (cgroup or by_pid):
        missing.append(
            Missing(
                "the workload apart from others",
                "no cgroup can be made for it: those of all processes are recorded"
                if request.command
                else "threads cannot be filtered by number here: those of all are recorded",
            )
        )
    if "raw_syscalls:sys_enter" not in have and not latency:
        lack = "the kernel shows no raw_syscalls tracepoints"
        missing.append(Missing("system calls", lack, layer="syscall"))
    events += ours.events
    events += [Event(probe.event) for probe in probes]
    if request.detail == "stacks":
        how = "dwarf" if request.call_graph == "dwarf" else "fp"
        events.append(
            Event(CLOCK, stack=how, frequency=min(FREQUENCY, facts.sample_rate or FREQUENCY))
        )
    missing += ours.missing
    if not ours.events and not ours.graph and not probes:
        first = missing[0]
        raise Error(
            f"nothing of {found[0].mount.path} can be recorded",
            "; ".join(f"{why.what}: {why.why}" for why in missing[:3]),
            first.fix,
        )
    if ftrace:
        # Of whose process they are: it tells threads by their own number alone.
        events.append(Event(THREADS))
        events = [replace(e, ftrace=not (e.stack or e.frequency)) for e in events]
    return ProbePlan(
        targets=tuple(found),
        probes=(*probes, *ours.probes),
        events=tuple(events),
        kernel_stacks=request.call_graph == "kernel",
        stack_bytes=request.stack_bytes,
        in_part=in_part,
        switch_records=workload and cgroup and not latency and "sched:sched_switch" in have,
        by_pid=by_pid,
        graph=ours.graph,
        functions=ours.functions,
        clock="mono" if "mono" in facts.clocks or not ours.graph else "perf",
        missing=tuple(missing),
    )


class _Stripped(Missing):
    """No symbol of the callbacks, which has ways out that other troubles lack."""


def _settled(
    facts: HostFacts,
    target: Target,
    symbols: Mapping[str, Symbols],
    demangle: Mapping[str, str],
    unreadable: Mapping[str, str],
) -> tuple[Target, list[Probe], list[Missing]]:
    """The target with the first of its probe sets whose functions are there, and their probes."""
    assert target.probe_set is not None
    lacking: list[Missing] = []
    for probe_set, groups in ((target.probe_set, target.groups), *target.otherwise):
        tried = replace(target, probe_set=probe_set, groups=groups, otherwise=())
        probes, missing = _probes(facts, tried, symbols, demangle, unreadable)
        wanted = "entry" if any(group.role == "call" for group, _ in groups) else "reply"
        if any(probe.role == wanted for probe in probes):
            return tried, probes, [*map(_instead, lacking), *missing]
        # Of a program of any name nobody said that it has them.
        if not target.otherwise or not any(
            _by_program(group, library) for group, library in groups
        ):
            lacking = lacking or missing
    who = f"{target.mount.comm} (pid {target.mount.daemon_pid})"
    unknown = Missing(f"daemon of {target.mount.path}", f"{who} {_UNKNOWN}", layer="daemon")
    return target, [], lacking or [unknown]


def _by_program(group: Group, library: Library) -> bool:
    name = os.path.basename(library.path)
    return group.library is None or not group.library.fullmatch(name)


def _instead(lacking: Missing) -> Missing:
    """What is said where the replies are recorded instead."""
    what = lacking.what.replace("daemon of", "callbacks of", 1)
    fix = lacking.fix.splitlines()[-1] if lacking.fix else ""
    return replace(lacking, what=what, fix=fix)


def _probes(
    facts: HostFacts,
    target: Target,
    symbols: Mapping[str, Symbols],
    demangle: Mapping[str, str],
    unreadable: Mapping[str, str],
) -> tuple[list[Probe], list[Missing]]:
    probes: list[Probe] = []
    missing: list[Missing] = []
    for group, library in target.groups:
        before = len(probes)
        why = unreadable.get(library.host_path, "")
        if not library.host_path:
            why = "its file is gone, was replaced, or cannot be named to the kernel"
        if why:
            what = f"daemon of {target.mount.path}"
            why = f"cannot read {library.path}: {why}"
            missing.append(Missing(what, why, "mount it again", "daemon"))
            continue
        refused = no_returns(facts, library, target.mount)
        for name, address, _, offset in symbols.get(library.host_path, ()):
            base, variants = _variants(name) if library.runtime != "Go" else (name, set())
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
            if group.role == "call" and not refused:
                probes.append(
                    replace(
                        probe, event=probe.event + RETURN, kind="r", role="return", arguments=()
                    )
                )
        if len(probes) == before and group.role in HELPERS:
            why = f"{os.path.basename(library.path)} does not show the function that tells them"
            inode = group.role == "inode"
            what = "inodes" if inode else "the callbacks' requests"
            layer = "names" if inode else "daemon"
            missing.append(Missing(f"{what} of {target.mount.path}", why, layer=layer))
        elif len(probes) == before:
            missing.append(_stripped(target, group, library))
        elif refused and group.role == "call":
            what = f"{DURATIONS} of the callbacks of {target.mount.path}"
            why = f"no return probes in {os.path.basename(library.path)}: {refused}"
            missing.append(Missing(what, why, layer="daemon"))
    if all(probe.role in HELPERS for probe in probes):
        probes = []
    return probes, missing


# What compilers append to a function's name: it is local to a link (llvm, lto_priv), its arguments
# have moved (isra, constprop), it is but a part of the function, called by it.
_VARIANT = re.compile(r"\.(part|isra|constprop|llvm|lto_priv)(?:\.\d+)?(?=\.|$)")


def _variants(name: str) -> tuple[str, set[str]]:
    """A symbol's name without what compilers have appended, and what that was."""
    return _VARIANT.sub("", name), set(_VARIANT.findall(name))


def short_name(function: str) -> str:
    """A function's name without what it is in: C++'s and Rust's "::", Go's directories.

    What stands in brackets is not taken apart: template arguments, Rust's impls.
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
    found = []
    abi = group.abi or ("go" if library.runtime == "Go" else "c")
    for name, text in wanted.items():
        value = fetch(text, facts.arch, library.machine, abi)
        if value is not None:
            found.append((name, value))
    return tuple(found)


def _stripped(target: Target, group: Group, library: Library) -> Missing:
    name = os.path.basename(library.path)
    ways = "install its debug symbols (a package such as NAME-dbgsym or NAME-debuginfo)"
    if not (target.probe_set and target.probe_set.name == GENERIC):
        ways = (
            f"fusetools record --fs {GENERIC} -- …   "
            "(works without symbols; no names of callbacks)\n" + ways
        )
    return _Stripped(
        f"daemon of {target.mount.path}",
        f"{name} of {target.mount.comm} is stripped, it has no symbol for its {group.name}",
        ways,
        "daemon",
    )


def _named_apart(probes: Sequence[Probe]) -> list[Probe]:
    """Each place once; events of the same name in another file get a number."""
    kept: list[Probe] = []
    seen: set[tuple[str, str]] = set()
    used: set[str] = set()
    # What only tells inodes comes last: another daemon's reply at that place tells them, too.
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
        kept.append(probe)
    return kept


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


def without_frame_pointers(mount: Mount) -> tuple[str, ...]:
    """Names of the daemon's files (program, libraries) whose code keeps no frame pointers."""
    return tuple(
        os.path.basename(library.path)
        for library in mount.libraries
        if library.frame_pointers is not None and library.frame_pointers < FRAME_POINTERS
    )


def _needs_copies(mount: Mount) -> bool:
    """Whether stacks of its daemon's waits are whole only by unwind tables. Go's own code has none,
    and keeps frame pointers, also where it is linked with a C library that does not."""
    return not any(one.runtime == "Go" for one in mount.libraries) and bool(
        without_frame_pointers(mount)
    )
