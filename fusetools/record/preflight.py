"""Before a recording: the lock, whether this host can record, the plan, where the file goes."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fusetools.core import native
from fusetools.errors import Error
from fusetools.figures import binary
from fusetools.host import inherited
from fusetools.host.asuser import as_user, exists, may_read_memory
from fusetools.host.cgroup import perf_hierarchy
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.files import Files, command_problem
from fusetools.host.mounts import answering, with_daemon
from fusetools.host.probe import read_host
from fusetools.host.processes import (
    fuse_connections,
    fuse_descriptors,
    shows_connections,
    started,
    thread_comms,
)
from fusetools.names import CALIBRATION
from fusetools.output import PRINTED, Output, Owner
from fusetools.plan import daemons, permissions, planner, probeset
from fusetools.plan.bundles import can_be_numbered
from fusetools.plan.capabilities import Advice, installs, not_root, obstacles
from fusetools.plan.options import Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Code, Reason
from fusetools.record import symbols, tracefs
from fusetools.record.attached import Attached
from fusetools.record.perf import SWITCH, Refused
from fusetools.record.state import Lock, Removed
from fusetools.record.switches import perf_misses_switches
from fusetools.record.workload import User, caller, cannot_run

MOST = 4 << 30  # bytes that a user who invoked sudo may record
# It has one user.
NOT_BESIDE = Reason(Code.GRAPH_IN_USE, fix="fusetools record --wait -- …")


def prepare(
    options: Options, chosen: probeset.ProbeSet | None = None
) -> tuple[HostFacts, ProbePlan]:
    """Return this host's facts, and the plan with the requested probe set. Raise Error, with what
    is missing and what fixes it, if nothing can be recorded."""
    facts = read_host(trial=False, paths=options.mounts or None)
    check_obstacles(facts)
    if options.pid is not None:
        facts = _with_pid(facts, options, options.pid)
    targets = daemons.targets(facts, options, probeset.builtin(), chosen)
    check_probe_set(targets, _caller(options))
    own = Library(path=native.__file__, host_path=native.__file__, inode=0, device="")
    found = symbols.of_targets(targets)
    calibration = [row for row in native.elf_functions(own.path) if row[0] == CALIBRATION]
    found = replace(found, functions={**found.functions, own.path: calibration})
    comms = {
        pid: thread_comms(Files(Path("/")), pid)
        for target in targets
        for pid in (target.mount.daemon_pid, *target.mount.servers)
        if pid is not None
    }
    has_cgroup = perf_hierarchy(Files(Path("/"))) is not None
    return facts, planner.plan(facts, options, targets, found, own, comms, has_cgroup)


def for_script(options: Options, stored: HostFacts | None = None) -> tuple[HostFacts, ProbePlan]:
    """Return the facts and the plan of a script that records without fusetools: by perf and
    trace-cmd, and by the numbers of the workload's threads.

    ``stored``: facts of another host. Raise Error if nothing can be recorded.
    """
    chosen = _chosen(options.fs, None)
    files = Files(Path("/"))
    if stored is None and os.geteuid() != 0:
        raise _refusal(not_root("script …"))
    facts = stored or read_host(trial=False, paths=options.mounts or None)
    facts = replace(facts, instances=False)  # perf records all events
    perf = facts.perf
    if perf is None:
        raise Error("a script needs perf", facts.perf_why, installs(facts, "perf"))
    if options.pid is not None and not stored:
        facts = _with_pid(facts, options, options.pid)
    targets = daemons.targets(facts, options, probeset.builtin(), chosen)
    found = symbols.functions(
        (library, None if stored else target.mount.daemon_pid)
        for target in targets
        for library in target.libraries
        if not stored or symbols.is_same(library)
    )
    if stored:
        why = "it is not here with the same build id"
        absent = {library.host_path for target in targets for library in target.libraries}
        absent -= found.functions.keys() | found.unreadable.keys()
        found = replace(found, unreadable={**found.unreadable, **dict.fromkeys(absent, why)})
    comms = {
        pid: thread_comms(files, pid)
        for target in targets
        for pid in (target.mount.daemon_pid, *target.mount.servers)
        if pid is not None and not stored
    }
    plan = planner.plan(facts, options, targets, found, None, comms, cgroup=False)
    missing = tuple(why for why in plan.missing if why.code != Code.NO_CONTROL)  # it needs none
    plan = replace(plan, missing=missing)
    if not stored and any(event.name == SWITCH for event in plan.events):
        with tempfile.TemporaryDirectory() as folder:
            misses = perf_misses_switches(perf, Path(folder))
        plan = replace(plan, switch_records=misses)
    return facts, plan


def check_probe_set(targets: Sequence[daemons.Target], user: User | None) -> None:
    """Raise Error if a probe set of the user's own would probe a daemon that the user may not
    read."""
    probed = [t for t in targets if t.groups and t.probe_set and t.probe_set.own]
    if user is None or not probed:
        return
    pids = {target.mount.daemon_pid for target in probed} - {None}
    readable = {pid for pid in pids if pid and may_read_memory(pid, user)}
    permissions.check_probe_set(user.name, probed, readable)


def check_daemons(plan: ProbePlan, user: User | None, named: bool) -> list[Mount]:
    """Return the mounts whose daemon has ended since it was found, as ended(). For a user of sudo
    its number may be another process's by now: raise Error then, too."""
    if user is None:
        return ended(plan, named)
    files = Files(Path("/"))
    for mount in (target.mount for target in plan.targets):
        pid = mount.daemon_pid
        if pid is None:
            continue
        connections = fuse_connections(files, pid, fuse_descriptors(files, pid))
        hidden = None in connections and not shows_connections(files)
        if mount.connection not in connections and not hidden:
            raise _ended(mount)
    check_probe_set(plan.targets, user)
    return []


def ended(plan: ProbePlan, named: bool) -> list[Mount]:
    """Return the mounts whose daemon has ended, and that no other process serves. Raise Error if
    these are all, or if the mounts were ``named``."""
    mounts = [target.mount for target in plan.targets]
    without = [m for m in mounts if m.daemon_pid is not None and started(m.daemon_pid) is None]
    now = answering(Files(Path("/"))) if without else {}
    gone = [mount for mount in without if now.get(mount.path) in (None, mount.daemon_pid)]
    if gone and (named or len(gone) == len(mounts)):
        raise _ended(gone[0])
    return gone


def _ended(mount: Mount) -> Error:
    return Error(
        f"the daemon of {mount.path}, process {mount.daemon_pid}, has ended",
        "it did while the recording was being prepared",
        f"umount {shlex.quote(mount.path)}   # and mount it again",
    )


def check_obstacles(facts: HostFacts) -> None:
    """Raise Error, with doctor's advice, if this host can record nothing."""
    for obstacle in obstacles(facts, "record …")[:1]:
        raise _refusal(obstacle)


def planned(options: Options) -> tuple[HostFacts, ProbePlan]:
    """Return what record() would record."""
    _check_callers(options)
    if Path(tracefs.PLACE, "events").exists():
        return prepare(options, _chosen(options.fs, _caller(options)))
    with prepared(options, ["record"]) as (_, _, _, facts, plan):
        return facts, plan


def _refusal(obstacle: Advice) -> Error:
    return Error("cannot record", obstacle.problem, obstacle.fix)


def _with_pid(facts: HostFacts, options: Options, pid: int) -> HostFacts:
    """Return the facts with process ``pid`` as the daemon of the mounts that it serves. Raise Error
    if it serves none."""
    files = Files(Path("/"))
    if started(pid) is None:
        raise Error(f"there is no process {pid}")
    wanted = facts.mounts
    if options.mounts:
        wanted = tuple(daemons.mount_of(facts, path) for path in options.mounts)
    connections = fuse_connections(files, pid, fuse_descriptors(files, pid))
    shown = bool(connections - {None}) or shows_connections(files)
    served = permissions.served(pid, connections, shown, facts.mounts, wanted)
    mounts = tuple(
        with_daemon(files, replace(mount, servers=tuple({*mount.servers, pid})), pid)
        if mount.connection in served and mount.daemon_pid != pid
        else mount
        for mount in facts.mounts
    )
    return replace(facts, mounts=mounts)


def _chosen(text: str | None, user: User | None) -> probeset.ProbeSet | None:
    """Return the probe set of --fs: NAME or PATH, then +GROUP for each optional group. ``user``:
    whose rights a file is read with."""
    if text is None:
        return None
    known = {probe_set.name: probe_set for probe_set in probeset.builtin()}
    name, *extra = text.split("+")
    if name in known:
        return daemons.select(known[name], extra)
    if "/" not in text and not name.endswith(".toml"):
        names = ", ".join(sorted(known))
        raise Error(f"there is no probe set {name}", f"there are: {names}", "--fs PATH.toml")
    if extra and exists(text, user):
        name, extra = text, []
    return daemons.select(probeset.load(Path(name), user), extra)


def check_feedback(output: Output, plan: ProbePlan) -> None:
    """Raise Error if the recording would record how it is written itself."""
    device = output.device
    number = os.major(device) << 20 | os.minor(device)
    for target in plan.targets:
        if target.mount.connection == number:
            raise Error(
                f"cannot write {output.path}",
                f"it is on {target.mount.path}, which is traced: each write would make more events",
                "-o FILE on another file system, or --force to record that",
            )


def output_of(options: Options) -> Output:
    """Return where the recording goes. Raise Error if it cannot be written there."""
    if options.output == PRINTED or options.output.startswith(("/dev/std", "/dev/fd/")):
        why = "a recording cannot be printed: perf writes it at any place"
        raise Error(f"cannot write {options.output}", why, "-o FILE")
    if os.geteuid() != 0:
        raise _refusal(not_root("record …"))
    output = Output(options.output, owner(options.as_root))
    try:
        output.check_old()
    except BaseException:
        output.close()
        raise
    return output


def _caller(options: Options) -> User | None:
    """Return the user who invoked sudo; None: root decides."""
    return None if options.as_root else caller(os.environ)


def owner(as_root: bool) -> Owner | None:
    """Return the owner of files: the user who invoked sudo."""
    user = None if as_root else caller(os.environ)
    return Owner(user.uid, user.gid, user.groups, user.name) if user else None


@contextlib.contextmanager
def prepared(
    options: Options, arguments: Sequence[str], warn: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[Lock, Removed, User | None, HostFacts, ProbePlan]]:
    """Provide the lock, what a killed recording had left, the workload's user, the facts and the
    plan.

    ``warn``: told who holds the lock, where ``options.wait`` has us wait for it.
    """
    user = _caller(options)
    if user and options.max_size > MOST:
        why = f"who invoked sudo may record {binary(MOST)} at most"
        fix = f"--max-size {MOST >> 30}G, or: --as-root"
        raise Error(f"--max-size {binary(options.max_size)} is too much", why, fix)
    if letter := inherited.too_low():
        why = f"ulimit -{letter} was set too low, and cannot be raised here"
        raise Error("cannot record", why, f"ulimit -{letter} unlimited   # before sudo")
    _check_callers(options)
    chosen = _chosen(options.fs, user)
    waiting = warn if options.wait else None
    uid = user.uid if user else 0
    with Lock(["fusetools", *arguments], waiting=waiting, uid=uid) as lock:
        removed = lock.clean()
        if removed.left:
            raise Error(
                "a killed recording left what cannot be removed",
                "; ".join(removed.left),
                "stop the process that uses it, then run: fusetools clean",
            )
        with _tracefs(lock):
            facts, plan = prepare(options, chosen)  # runs commands: signals are not held back yet
            if plan.graph or not can_be_numbered(facts.fetch_args):
                facts, plan = _alone(lock, options, chosen, facts, plan)
            try:
                yield lock, removed, user, facts, plan
            except Refused:
                check_obstacles(read_host())  # by its trial
                raise


def _alone(
    lock: Lock,
    options: Options,
    chosen: probeset.ProbeSet | None,
    facts: HostFacts,
    plan: ProbePlan,
) -> tuple[HostFacts, ProbePlan]:
    """Make sure that no other recording runs, or plans to run beside this one."""
    apart = can_be_numbered(facts.fetch_args)
    if apart and options.backend == "auto" and not options.wait and lock.beside():
        facts, plan = prepare(replace(options, backend="kprobe"), chosen)
        return facts, replace(plan, missing=(*plan.missing, NOT_BESIDE))
    fix = "fusetools record --backend kprobe …   # beside it" if apart else ""
    return prepare(options, chosen) if lock.stay_alone(fix) else (facts, plan)


def _check_callers(options: Options) -> None:
    """Raise Error if the workload's command cannot run, or the process to attach to cannot be
    recorded."""
    if options.command:
        user = _caller(options)
        name = options.command[0]
        # As the user: root's answer would tell what is in directories that the user cannot see.
        if number := int(as_user(user, lambda: str(command_problem(name))) or 0):
            raise cannot_run(name, number)
    elif options.caller is not None:
        Attached(options.caller, _caller(options))


@contextlib.contextmanager
def _tracefs(lock: Lock) -> Iterator[None]:
    """tracefs at its place: mounted for the time of the recording where it is not."""
    if not Path(tracefs.PLACE, "events").exists():
        lock.mount()
    try:
        yield
    finally:
        if not (lock.state.probes or lock.state.ftrace or lock.state.instance):
            lock.unmount()
