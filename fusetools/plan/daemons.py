"""The mounts to trace, and the probe set that fits each one's daemon."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusetools.errors import Error
from fusetools.host.facts import HostFacts, Library, Mount
from fusetools.host.mounts import mount_on
from fusetools.plan.options import Options
from fusetools.plan.probeset import GENERIC, HELPERS, Group, ProbeSet
from fusetools.reasons import Code, Reason, Value

# Code that keeps frame pointers in a smaller share of its functions counts as without. On Debian 12
# (without) libraries have 0 to 0.22, ld.so 0.46, perf 0.86; code compiled with them has 1.
FRAME_POINTERS = 0.9


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


def targets(
    facts: HostFacts, options: Options, sets: Sequence[ProbeSet], chosen: ProbeSet | None = None
) -> tuple[Target, ...]:
    """Return the mounts to trace and what to probe in each one's daemon.

    ``chosen``: the set that the user named, already reduced by select(); else each mount gets those
    of ``sets`` that match one of its daemon's libraries, up to the generic set, which needs only
    symbols that a library exports. Raise Error if there is no such mount.
    """
    mounts = _mounts(facts, options)
    fitted = tuple(_target(mount, sets, chosen) for mount in mounts)
    if chosen and not any(target.groups for target in fitted):
        raise Error(
            f"the probe set {chosen.name} fits no daemon here",
            fitted[0].lacks.why if fitted[0].lacks else "",
            "fusetools record --fs libfuse -- …   # any daemon that links libfuse dynamically"
            if chosen.name != GENERIC and fitted[0].mount.libraries
            else "",
        )
    return fitted


def _mounts(facts: HostFacts, options: Options) -> tuple[Mount, ...]:
    if not facts.mounts:
        fix = "mount one first (autofs mounts when it is used: ls /cvmfs/REPOSITORY)"
        if options.command:
            fix += "\nfusetools record --mount PATH -- WORKLOAD   # where the workload mounts it"
        raise Error("no FUSE file system is mounted here", "", fix)
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
    """Return the FUSE mount that ``path`` (absolute) lies on. Raise Error if there is none."""
    mount = mount_on(facts.mounts, path)
    if mount is None:
        known = ", ".join(mount.path for mount in facts.mounts[:5])
        raise Error(
            f"no FUSE file system is mounted on {path}",
            f"mounted: {known}{' …' if len(facts.mounts) > 5 else ''}",
            "fusetools doctor   # lists the FUSE mounts",
        )
    return mount


def _target(mount: Mount, sets: Sequence[ProbeSet], chosen: ProbeSet | None) -> Target:
    if mount.daemon_pid is None:
        return Target(mount, lacks=no_calls(mount, Code.DAEMON_UNKNOWN, {"message": mount.why}))
    if not mount.libraries:
        why = no_calls(mount, Code.LIBRARIES_UNREADABLE)
        if mount.why:
            why = no_calls(mount, Code.DAEMON_UNKNOWN, {"message": mount.why})
        return Target(mount, lacks=why)
    fits = []
    for probe_set in [chosen] if chosen else sets:
        probe_set = probe_set if chosen else select(probe_set, ())
        groups = tuple(pair for group in probe_set.groups for pair in _files(group, mount))
        # Helpers are in a library that others use, too.
        if any(group.role not in HELPERS for group, _ in groups):
            fits.append((probe_set, groups))
            if probe_set.name == GENERIC and not by_program(*groups[0]):
                break
    if fits:
        (probe_set, groups), *rest = fits
        return Target(mount, probe_set, groups, otherwise=tuple(rest))
    if chosen:
        patterns = (g.library.pattern for g in chosen.groups if g.role not in HELPERS and g.library)
        about = {**served_by(mount), "patterns": tuple(patterns)}
        return Target(mount, lacks=no_calls(mount, Code.LIBRARY_ABSENT, about))
    return Target(mount, lacks=no_calls(mount, Code.DAEMON_UNSUPPORTED, served_by(mount)))


def no_calls(
    mount: Mount, code: Code, subject: Mapping[str, Value] | None = None, fix: str = ""
) -> Reason:
    """Return why no call of a mount's daemon can be recorded."""
    about = {"part": "daemon", "path": mount.path, **(subject or {})}
    return Reason(code, about, fix=fix, layer="daemon")


def served_by(mount: Mount) -> dict[str, Value]:
    return {"comm": mount.comm or "", "pid": mount.daemon_pid or 0}


def _files(group: Group, mount: Mount) -> list[tuple[Group, Library]]:
    """Return the daemon's files that a group matches."""
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
    """Return the set with its usual groups and the optional groups that ``extra`` names."""
    names = [group.name for group in probe_set.groups]
    for name in extra:
        if name not in names:
            raise Error(
                f"the probe set {probe_set.name} has no group {name}",
                f"its groups: {', '.join(names)}",
            )
    groups = tuple(g for g in probe_set.groups if not g.optional or g.name in extra)
    return replace(probe_set, groups=groups)


def shared(facts: HostFacts, chosen: Sequence[Target]) -> Iterator[Reason]:
    """Yield a reason for each daemon that serves recorded mounts and others: the others are not
    recorded."""
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
            {**served_by(own[0]), "others": tuple(beside)},
            fix=f"fusetools record {paths} -- …",
            layer="daemon",
        )


def by_program(group: Group, library: Library) -> bool:
    """Return whether the group's file is the daemon's program, and not a library it names."""
    name = os.path.basename(library.path)
    return group.library is None or not group.library.fullmatch(name)


def is_32bit(mount: Mount) -> bool:
    """Return whether its daemon is a 32-bit program."""
    return any(library.machine in ("i386", "arm") for library in mount.libraries)


def without_frame_pointers(mount: Mount) -> tuple[str, ...]:
    """Return the names of the daemon's files (program, libraries) without frame pointers."""
    return tuple(
        os.path.basename(library.path)
        for library in mount.libraries
        if library.frame_pointers is not None and library.frame_pointers < FRAME_POINTERS
    )


def needs_copies(mount: Mount) -> bool:
    """Return whether only unwind tables give complete stacks of its daemon's waits.

    Go's own code has no tables but keeps frame pointers, also if linked with a C library that does
    not.
    """
    return not any(library.go for library in mount.libraries) and bool(
        without_frame_pointers(mount)
    )
