"""The FUSE mounts of a host, the process that answers each, and the files that it has mapped.

Every access to a mounted FUSE file system has a timeout: its daemon may hang.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fusetools.core import native
from fusetools.host.facts import VIRTIOFS, Library, Mount
from fusetools.host.files import Files, bounded, open_regular
from fusetools.host.paths import FUSE_TYPES as FUSE_TYPES
from fusetools.host.paths import HANGING
from fusetools.host.paths import is_on as is_on
from fusetools.host.paths import unescape as unescape
from fusetools.host.processes import (
    FUSE,
    PATIENCE,
    comm,
    could_serve,
    fuse_connections,
    open_files,
    patiently,
    reads_requests,
    shows_connections,
    streams,
)
from fusetools.host.rights import drop_privileges
from fusetools.host.uretprobe import guards
from fusetools.host.words import is_file

T = TypeVar("T")

MOST_FILES = 64  # limit of a process's files that are named
# File systems without a disk.
_OF_KERNEL = (
    *("proc", "sysfs", "devtmpfs", "devpts", "mqueue", "tracefs", "debugfs", "securityfs", "bpf"),
    *("cgroup", "cgroup2", "fusectl", "configfs", "pstore", "hugetlbfs", "autofs"),
)

BEYOND = "its daemon runs outside of this virtual machine (virtiofs)"
MEMORY = 1 << 30  # limit in bytes for the memory of a child that examines a daemon's files


@dataclass(frozen=True)
class Daemon:
    """A process that has FUSE's device open.

    ``connections`` is empty if the kernel does not show them. ``uid``: the real user of the
    process, which a program cannot choose.
    """

    pid: int
    uid: int | None
    threads: int
    connections: frozenset[int]
    own: Own


class Own(NamedTuple):
    """Texts of /proc about a process's memory and mounts."""

    cmdline: str
    maps: str
    mountinfo: str

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(self.cmdline.rstrip("\0").split("\0"))


def own_of(files: Files, pids: Sequence[int]) -> dict[int, Own]:
    """Read them for these processes, "" for what cannot be read in time."""
    texts = iter(patiently(files, *(f"/proc/{pid}/{name}" for pid in pids for name in Own._fields)))
    return {pid: Own(next(texts), next(texts), next(texts)) for pid in pids}


def read_mounts(
    files: Files,
    descriptors: dict[int, list[tuple[str, str]]],
    paths: Sequence[str] | None = None,
) -> tuple[Mount, ...]:
    """Return every FUSE mount once (by connection), those of this mount namespace first.

    ``descriptors``: as processes.open_files() returns them. ``paths``: examine a daemon's files on
    FUSE mounts only for the mounts of these paths; None: for all mounts.
    """
    mounts = all_namespaces(files)
    if not mounts:
        return ()
    daemons = _daemons(files, descriptors)
    unknown = [daemon for daemon in daemons if not daemon.connections]
    if unknown and (len(unknown) < len(daemons) or shows_connections(files)):
        unknown = []  # the mounts have no daemon yet
    commands = ((daemon.pid, daemon.own.arguments) for daemon in unknown)
    named = named_mounts(commands, [mount.path for mount in mounts])

    def wanted(mount: Mount) -> bool:
        return paths is None or any(mount.holds(path) for path in paths)

    return tuple(_with_daemon(files, m, daemons, named, wanted(m)) for m in mounts)


def answering(files: Files) -> dict[str, int | None]:
    """Return the process that answers each mount now, by the mount's path."""
    return {mount.path: mount.daemon_pid for mount in read_mounts(files, open_files(files), [])}


def all_namespaces(files: Files) -> list[Mount]:
    """Return the mounts without their daemons."""
    mounts = _once(of_own_namespace(files))
    seen = {files.link("/proc/self/ns/mnt")}
    for pid in sorted(int(name) for name in files.list("/proc") if name.isdecimal()):
        namespace = files.link(f"/proc/{pid}/ns/mnt")
        if not namespace or namespace in seen:
            continue
        seen.add(namespace)
        there = _once(parse_mountinfo(files.read(f"/proc/{pid}/mountinfo", quiet=True) or ""))
        for connection, mount in there.items():
            mounts.setdefault(connection, replace(mount, seen_by=pid))
    return list(mounts.values())


def _once(mounts: Iterable[Mount]) -> dict[int, Mount]:
    """Return the mounts of a namespace by connection, each with all its paths."""
    paths: dict[int, dict[str, Mount]] = {}
    for mount in mounts:
        paths.setdefault(mount.connection, {}).setdefault(mount.path, mount)
    return {
        connection: replace(next(iter(at.values())), also=tuple(at)[1:])
        for connection, at in paths.items()
    }


def mount_on(mounts: Iterable[Mount], path: str) -> Mount | None:
    """Return the mount that an absolute path is on: of several on one mount point the last in this
    namespace, which covers the others."""
    on = [(mount.holds(path), mount.seen_by is None, mount) for mount in mounts]
    here = [candidate for candidate in on if candidate[0]]
    return max(reversed(here), key=lambda candidate: candidate[:2])[2] if here else None


def of_own_namespace(files: Files) -> list[Mount]:
    """Return the FUSE mounts of this mount namespace only."""
    return parse_mountinfo(files.read("/proc/self/mountinfo", quiet=True) or "")


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the FUSE mounts in a /proc/PID/mountinfo, whole file systems before bind mounts of a
    part."""
    mounts = []
    known: dict[str, int] = {}
    for line in text.split("\n"):
        before, separator, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(types) < 3:
            continue
        fstype = unescape(types[0])
        if fstype.partition(".")[0] not in FUSE_TYPES:
            continue
        connection = device(fields, types, known)
        if connection is None:
            continue
        options = dict(option.partition("=")[::2] for option in types[2].split(","))
        mount = Mount(
            path=unescape(fields[4]),
            fstype=fstype,
            source=unescape(types[1]),
            connection=connection,
            user=_number(options.get("user_id")),
            group=_number(options.get("group_id")),
            allow_other="allow_other" in options,
        )
        mounts.append((fields[3] != "/", mount))
    return [mount for _, mount in sorted(mounts, key=lambda item: item[0])]


def device(fields: list[str], types: list[str], known: dict[str, int]) -> int | None:
    """Return the device number in a line of mountinfo, None if there is none.

    virtiofs mounts a file system of its own where its host has another file system in the shared
    directory. This mount has its own device, but the connection of the mount above: return that
    number (fuse_dentry_automount in the kernel's fs/fuse/dir.c). ``known``: the lines of virtiofs
    so far, by mount.
    """
    number = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", fields[2])
    if not number:
        return None
    found = int(number[1]) << 20 | int(number[2])
    if types[0] == VIRTIOFS:
        found = known[fields[0]] = known.get(fields[1], found) if types[1] == "none" else found
    return found


def covered(mountinfo: str) -> set[int]:
    """Return the connections that no path reaches: on each of their mount points another mount
    lies."""
    parents: set[tuple[str, str]] = set()
    mounts: dict[int, set[tuple[str, str]]] = {}
    known: dict[str, int] = {}
    for line in mountinfo.split("\n"):
        before, separator, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6:
            continue
        parents.add((fields[1], fields[4]))
        connection = device(fields, types, known)
        if connection is not None and types[0].partition(".")[0] in FUSE_TYPES:
            mounts.setdefault(connection, set()).add((fields[0], fields[4]))
    return {connection for connection, at in mounts.items() if at <= parents}


def opened_on(files: Files, pid: int) -> list[tuple[int, int]]:
    """Return a process's descriptors on FUSE mounts: (descriptor, connection). Touch no mount."""
    mounts: dict[str, int] = {}
    known: dict[str, int] = {}
    for line in (files.read(f"/proc/{pid}/mountinfo", quiet=True) or "").split("\n"):
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(types) < 3 or types[0].partition(".")[0] not in FUSE_TYPES:
            continue
        if (connection := device(fields, types, known)) is not None:
            mounts[fields[0]] = connection
    found = []
    for number in files.list(f"/proc/{pid}/fdinfo") if mounts else ():
        text = files.read(f"/proc/{pid}/fdinfo/{number}", quiet=True) or ""
        mount = re.search(r"^mnt_id:\s*([0-9]+)$", text, re.MULTILINE)
        if number.isdigit() and mount and mount[1] in mounts:
            found.append((int(number), mounts[mount[1]]))
    return found


class OpenFile(NamedTuple):
    """A file that a process has open. ``mount``: where its file system is mounted; ``source``: the
    device. All as that process sees them."""

    path: str
    mount: str
    fstype: str
    source: str


def files_of(files: Files, pid: int) -> dict[int, OpenFile]:
    """Return a process's descriptors of files and directories on other file systems than FUSE.

    Touch no file; return only some if there are very many."""
    rows: dict[str, tuple[str, str, str]] = {}
    for line in (files.read(f"/proc/{pid}/mountinfo", quiet=True) or "").split("\n"):
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        fstype = types[0].partition(".")[0]
        if len(fields) > 5 and len(types) > 2 and fstype not in (*FUSE_TYPES, *_OF_KERNEL):
            rows[fields[0]] = unescape(fields[4]), fstype, unescape(types[1])
    found: dict[int, OpenFile] = {}
    for number in files.list(f"/proc/{pid}/fd") if rows else ():
        path = files.link(f"/proc/{pid}/fd/{number}")
        if not number.isdecimal() or not path.startswith("/"):
            continue
        text = files.read(f"/proc/{pid}/fdinfo/{number}", quiet=True) or ""
        mount = re.search(r"^mnt_id:\s*([0-9]+)$", text, re.MULTILINE)
        if mount and mount[1] in rows and len(found) < MOST_FILES:
            found[int(number)] = OpenFile(path, *rows[mount[1]])
    return found


def parse_autofs(text: str) -> list[tuple[int, str, int]]:
    """Return the autofs mounts in a /proc/PID/mountinfo: number, path, process group of the
    mounter."""
    mounts = []
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(types) < 3 or types[0] != "autofs":
            continue
        number = device(fields, types, {})
        group = re.search(r"(?:^|,)pgrp=([0-9]{1,10})(?:,|$)", types[2])
        if number is not None and group:
            mounts.append((number, unescape(fields[4]), int(group[1])))
    return mounts


def mounted(files: Files, *types: str) -> list[str]:
    """Return the mount points of file systems of these types."""
    places = []
    for line in (files.read("/proc/self/mountinfo", quiet=True) or "").split("\n"):
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after.partition(" ")[0] in types:
            places.append(unescape(fields[4]))
    return places


def automounted(files: Files, path: str) -> bool:
    """Return whether a path lies on or below an autofs mount of this namespace."""
    return any(is_on(path, mount) for mount in mounted(files, "autofs"))


def reachable(text: str, *types: str) -> list[tuple[str, str]]:
    """Return (mount point, options of the file system) of a /proc/PID/mountinfo's mounts of these
    types.

    Mounts below a FUSE or autofs mount are left out: a look-up of their path may hang. Below a root
    that is such a mount, this holds for all.
    """
    hanging, wanted = [], []
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        fstype, _, about = after.partition(" ")
        if fstype in types:
            wanted.append((unescape(before.split(" ")[4]), about.rpartition(" ")[2]))
        elif fstype.partition(".")[0] in HANGING:
            hanging.append(unescape(before.split(" ")[4]))
    return [
        (path, options)
        for path, options in wanted
        if not any(is_on(path, mount) for mount in hanging if mount != "/")
    ]


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch("[0-9]{1,10}", text) else None


def _daemons(files: Files, descriptors: dict[int, list[tuple[str, str]]]) -> list[Daemon]:
    daemons = []
    of = {pid: [n for n, link in opened if link == FUSE] for pid, opened in descriptors.items()}
    own = own_of(files, [pid for pid, numbers in of.items() if numbers])
    for pid in own:
        status = files.read(f"/proc/{pid}/status", quiet=True) or ""
        threads = re.search(r"^Threads:\s*(\d+)$", status, re.MULTILINE)
        uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
        connections = fuse_connections(files, pid, of[pid])
        daemons.append(
            Daemon(
                pid=pid,
                uid=int(uid[1]) if uid else None,
                threads=int(threads[1]) if threads else 0,
                connections=frozenset(number for number in connections if number is not None),
                own=own[pid],
            )
        )
    return daemons


def _with_daemon(
    files: Files, mount: Mount, daemons: list[Daemon], named: dict[int, set[str]], wanted: bool
) -> Mount:
    if mount.fstype == VIRTIOFS:
        return replace(mount, why=BEYOND)
    candidates = [daemon for daemon in daemons if mount.connection in daemon.connections]
    # Older kernels do not show the connection: use the mount point on the command line
    if not candidates:
        candidates = [
            daemon
            for daemon in daemons
            if mount.path in named.get(daemon.pid, ()) and could_serve(daemon.uid, mount.user)
        ]
    if not candidates:
        return replace(mount, why=_why_none(files, bool(named)))
    mapped = {daemon.pid: _executable_mappings(daemon.own.maps) for daemon in candidates}

    def rank(daemon: Daemon) -> tuple[bool, int, int, int]:
        """Return a sort key; the process that serves the mount has the greatest key.

        A supervisor holds the connection alone. CernVM-FS's watchdog has fewer threads and
        libraries than the client.
        """
        reads = len(candidates) > 1 and reads_requests(files, daemon.pid)
        return reads, daemon.threads, len(mapped[daemon.pid]), daemon.pid

    daemon = max(candidates, key=rank)
    servers = tuple(sorted(daemon.pid for daemon in candidates))
    return with_daemon(files, replace(mount, servers=servers), daemon.pid, wanted, daemon.own)


def with_daemon(
    files: Files, mount: Mount, pid: int, wanted: bool = True, own: Own | None = None
) -> Mount:
    """Return the mount as answered by process ``pid``, with the files that it has mapped.

    ``wanted``: also examine files on FUSE mounts, which sends requests; ``own``: what is known of
    the process already.
    """
    own = own or own_of(files, [pid])[pid]
    libraries = _locate(files, pid, own, wanted)
    why = "" if libraries else "its files are not shown to this user"
    seccomp, shadow_stack = guards(files, pid)
    return replace(
        mount,
        daemon_pid=pid,
        comm=comm(files, pid),
        libraries=libraries,
        why=why,
        program=_undeleted(files.link(f"/proc/{pid}/exe")),
        seccomp=seccomp,
        shadow_stack=shadow_stack,
        streams=streams(files, pid),
        options=threading(own.cmdline.split("\0")),
    )


def threading(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the daemon's arguments that set its number of threads (libfuse's and bindfs's
    options).

    Return no other arguments, as they may hold secrets.
    """
    found = [argument for argument in arguments if argument in ("-s", "--multithreaded")]
    for before, argument in zip(("", *arguments), arguments):
        listed = argument if before == "-o" else argument[2:] if argument[:2] == "-o" else ""
        options = listed.split(",")
        found += ["--multithreaded"] if "multithreaded" in options else []
        found += (o for o in options if re.fullmatch(r"max_threads=[0-9]{1,7}", o))
    return tuple(dict.fromkeys(found))


def named_mounts(
    commands: Iterable[tuple[int, Sequence[str]]], paths: Iterable[str]
) -> dict[int, set[str]]:
    """Return the mount points that each daemon's command line may name as its own, by pid.

    Mount points match as absolute paths or by their tails. The last match counts, as a daemon may
    show a directory on another mount (bindfs DIRECTORY MOUNT). A match behind an option counts only
    if there is no other.
    """
    known: dict[str, set[str]] = {}  # compare the whole path and its tails
    for path in paths:
        for at in (0, *(at + 1 for at, letter in enumerate(path) if letter == "/")):
            known.setdefault(path[at:], set()).add(path)
    named: dict[int, set[str]] = {}
    for pid, arguments in commands:
        last, named[pid] = (False, -1), set()
        for at, (before, argument) in enumerate(zip(arguments, arguments[1:])):
            own = set() if argument[:1] in ("", "-") else known.get(os.path.normpath(argument))
            if own and (not before.startswith("-"), at) > last:
                last, named[pid] = (not before.startswith("-"), at), own
    return named


def _why_none(files: Files, hidden: bool) -> str:
    if files.live and os.geteuid() != 0:
        return "no process of this user answers it"
    if hidden:
        return "this kernel does not show which process answers it: give --pid"
    return (
        "no process here has its connection open: it has ended, or runs in another pid namespace "
        "(fusetools stuck tells)"
    )


@dataclass(frozen=True)
class Mapping:
    path: str
    inode: int
    device: str  # "fe:01"
    range: str  # "7f…-7f…", the name in /proc/PID/map_files


def _executable_mappings(maps: str) -> list[Mapping]:
    """Return the files mapped executable, each once, in the order of their first address."""
    mappings: dict[tuple[int, str], Mapping] = {}
    for line in maps.split("\n"):
        fields = line.split(None, 5)
        if len(fields) < 6 or "x" not in fields[1] or not fields[4].isdecimal():
            continue
        path, inode = fields[5].replace("\\012", "\n"), int(fields[4])
        if inode and path.startswith("/"):
            mapping = Mapping(_undeleted(path), inode, fields[3], fields[0])
            mappings.setdefault((inode, fields[3]), mapping)
    return list(mappings.values())


def _undeleted(path: str) -> str:
    return path[: -len(" (deleted)")] if path.endswith(" (deleted)") else path


def _locate(files: Files, pid: int, own: Own, wanted: bool) -> tuple[Library, ...]:
    """Return libraries, each with a name that reaches it from here and its content.

    Both are read in children: a library may itself lie on a hung file system. ``wanted``: see
    with_daemon().
    """

    def look(wanted: list[Mapping]) -> str:
        paths = [_reachable(files, pid, mapping) for mapping in wanted]
        opened = [_opened(files, path) for path in paths]
        if files.live:
            drop_privileges()
        return json.dumps([(path, *_inside(at)) for path, at in zip(paths, opened)])

    none: tuple[str, None, str, str, list[str], None] = ("", None, "", "", [], None)
    on = {m.connection for m in parse_mountinfo(own.mountinfo)}
    mappings = _executable_mappings(own.maps)
    groups: dict[int | None, list[Mapping]] = {}  # by FUSE connection; None: all other file systems
    for mapping in mappings:
        number = _device_number(mapping.device)
        groups.setdefault(number if number in on else None, []).append(mapping)
    found: dict[Mapping, Any] = {}
    for connection, group in groups.items():
        if connection is not None and not wanted:
            continue
        # Long enough for a busy machine, as the child examines the daemon itself.
        answer = None
        if connection is None:
            answer = bounded(partial(look, group), 3 * PATIENCE, memory=MEMORY)
        if answer is not None:
            found.update(zip(group, json.loads(answer)))
            continue
        hung: set[str] = set()  # devices that hang: each leaves at most one child behind
        for mapping in group:
            if mapping.device not in hung:
                answer = bounded(partial(look, [mapping]), PATIENCE, memory=MEMORY)
                if answer is None:
                    hung.add(mapping.device)
                else:
                    found[mapping] = json.loads(answer)[0]
    return tuple(
        Library(
            mapping.path,
            path,
            mapping.inode,
            mapping.device,
            build_id,
            machine,
            runtime,
            tuple(imports),
            frame_pointers,
        )
        for mapping in mappings
        for path, build_id, machine, runtime, imports, frame_pointers in [found.get(mapping, none)]
    )


def _device_number(device: str) -> int:
    """Return the number of a device as /proc/PID/maps writes it ("fe:01")."""
    major, _, minor = device.partition(":")
    return int(major, 16) << 20 | int(minor, 16)


def _opened(files: Files, path: str) -> str:
    """Return a name of the file that opens without rights of its own; "" if the file cannot be
    read."""
    if not path or not files.live:
        return path and files.at(path)
    try:
        return f"/proc/self/fd/{open_regular(path)}"
    except OSError:
        return ""


def _inside(at: str) -> tuple[str | None, str, str, list[str], float | None]:
    """Return build id, machine, runtime, imports and frame pointers of a file; empty if it is
    unreadable."""
    try:
        if at:
            about = (native.elf_build_id(at), *native.elf_about(at))
            return (*about, native.elf_frame_pointers(at))
    except native.CoreError:
        pass
    return None, "", "", [], None


def _reachable(files: Files, pid: int, mapping: Mapping) -> str:
    """Return a name that reaches the mapped file: its own path, the path through the daemon's root,
    or map_files.

    The device in /proc/PID/maps may differ from that of stat() (btrfs, overlayfs). map_files leads
    to the mapped file itself, so compare with its stat where possible. Ignore names that tracefs
    does not accept.
    """
    exact = f"/proc/{pid}/map_files/{mapping.range}"
    wanted = _identity(files, exact)
    for path in (mapping.path, f"/proc/{pid}/root{mapping.path}"):
        identity = _identity(files, path)
        if (
            is_file(path)
            and identity is not None
            and identity == (wanted or (mapping.inode, mapping.device))
        ):
            return path
    return exact if wanted else ""


def _identity(files: Files, path: str) -> tuple[int, str] | None:
    try:
        status = os.stat(files.at(path))
    except OSError:
        return None
    return status.st_ino, f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
