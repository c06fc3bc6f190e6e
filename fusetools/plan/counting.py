"""Counters in the kernel, without recording: each event that represents a call, once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusetools import core
from fusetools.host.facts import HostFacts
from fusetools.plan.events import Event, Probe
from fusetools.plan.filters import EVERY, Filter, all_of, condition, grouped
from fusetools.plan.planner import ProbePlan

# Operations that workloads seldom request: counted together.
_RARE = {
    *("forget", "batch_forget", "init", "destroy", "interrupt", "notify_reply", "bmap", "poll"),
    *("fsyncdir", "getlk", "setlk", "setlkw", "ioctl", "fallocate", "copy_file_range"),
    *("setupmapping", "removemapping", "syncfs", "tmpfile", "statx", "copy_file_range_64"),
}
_LAST = max(number for number in core.OPCODES if number < 1000)  # CUSE's begin at 4096
OPCODES = {number: name for number, name in core.OPCODES.items() if name not in _RARE}
ANY = "FUSE requests of other kinds"
# Operations of later kernels, without a name: a few, as each counter costs time at each request.
LATER = {number: f"opcode_{number}" for number in range(_LAST + 1, _LAST + 9)}


@dataclass(frozen=True)
class Counted:
    """An event that perf stat counts, and the meaning of its count."""

    event: str
    filter: Filter
    function: str
    operation: str
    layer: str
    address: int | None = None


def counting(plan: ProbePlan) -> tuple[ProbePlan, tuple[Counted, ...]]:
    """(the plan with only the needed probes, what is counted). Requests are counted per operation
    and in total (as ANY)."""
    probes = tuple(p for p in plan.probes if p.role in ("entry", "reply", "begin"))
    scopes = {event.name: event for event in plan.events}
    rows = [
        Counted(
            p.recorded_as, _scope(scopes, p), p.function, p.operation, p.layer, p.address or None
        )
        for p in probes
        if p.role != "begin"
    ]
    begins = [p.recorded_as for p in probes if p.role == "begin"]
    begins += [name for name in ("fuse:fuse_request_send",) if name in scopes and not begins]
    for name in begins:
        only = scopes[name].filter if name in scopes else EVERY
        for number, operation in {**OPCODES, **LATER}.items():
            of_mounts = grouped(only) if only else EVERY
            both = all_of(condition(f"opcode=={number}"), of_mounts)
            rows.append(Counted(name, both, f"FUSE_{operation.upper()}", operation, "request"))
        rows.append(Counted(name, only, ANY, "", "request"))
    needed = replace(plan, probes=probes, events=(), graph=(), functions=(), switch_records=False)
    return needed, tuple(rows)


def others_call(plan: ProbePlan, facts: HostFacts) -> tuple[int, ...]:
    """PIDs of the traced daemons if daemons of other mounts run the same files: the kernel counts a
    probe of a file for every process that runs it. Empty: no other daemon runs them."""
    places = {probe.place.rpartition(":")[0] for probe in plan.probes if not probe.in_kernel}
    traced = {target.mount.connection for target in plan.targets}
    probed = {
        (library.device, library.inode)
        for target in plan.targets
        for library in target.libraries
        if library.host_path in places
    }
    if not any(
        mount.connection not in traced
        and any((library.device, library.inode) in probed for library in mount.libraries)
        for mount in facts.mounts
    ):
        return ()
    pids = {target.mount.daemon_pid for target in plan.targets if target.libraries}
    return tuple(sorted(pid for pid in pids if pid is not None))


def too_many(plan: ProbePlan) -> list[str]:
    """Return which additional calls the counts of the daemons' calls include; a recording
    excludes them."""
    sets = {target.probe_set.name for target in plan.targets if target.probe_set}
    if "libfuse_highlevel" not in sets:
        return []
    return [
        "of functions of libfuse that call each other (modules of a file system) each is counted; "
        "fix: fusetools record, then fusetools count"
    ]


def _scope(scopes: dict[str, Event], probe: Probe) -> Filter:
    scope = scopes.get(probe.recorded_as)
    return scope.filter if scope else EVERY
