"""Reads a moment of this host. Never touches a mount, stops no thread, leaves nothing behind.

What may block (a process's memory and command line, where its memory map is locked by a page fault
on a hung mount; anything of a process that is in execve) is read by a child with a time limit.
Sources: proc(5), Documentation/filesystems/proc.rst and fuse/fuse.rst, fs/fuse/control.c.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypedDict, TypeVar

from fusetools.core import native
from fusetools.host.files import open_regular
from fusetools.host.mounts import names_mount, parse_autofs, parse_mountinfo
from fusetools.host.processes import parse_maps, parse_stat
from fusetools.host.rights import drop_privileges
from fusetools.now import sockets, syscalls
from fusetools.now.bounded import each
from fusetools.now.moment import AUTOFS, Connection, Descriptor, Lock, Moment, Process, Task

LIMIT = 1.8  # seconds for the whole
PATIENCE = 0.25  # for one process or thread
MOST_THREADS = 4096  # that are looked at closely
MOST_STACKS = 128  # of a process
MOST_FILES = 500  # of a process, whose functions are named
STACK = 64 << 10  # bytes of a thread's stack that are looked at
LONGEST_PATH = 4096
FUSE = "/fuse"  # /dev/fuse, under whatever directory a container has it

# Waits that are no file system's: the usual ones of threads that wait for work.
_IDLE = re.compile(
    "futex_|poll_schedule_timeout|do_poll|do_sys_poll|do_select|ep_poll|do_epoll_wait|hrtimer_nano"
    "sleep|do_nanosleep|common_nsleep|pipe_|anon_pipe_|wait_for_partner|do_wait|kernel_wait|sigsusp"
    "end|do_sigtimedwait|do_rt_sigtimedwait|ptrace_stop|do_signal_stop|inet_csk_accept|skb_wait|__s"
    "kb_wait|sk_wait|unix_stream|unix_accept|unix_wait|wait_woken|n_tty_read|tty_read|msg|semtimedo"
    "p|do_semtimedop|io_cqring_wait|read_events|inotify_read|signalfd|timerfd|eventfd|do_syslog|dev"
    "kmsg|kthread|worker_thread|rescuer|smpboot|fuse_dev_do_read|0$"
)

_SCHEDULER = re.compile("_*(io_)?schedule")


T = TypeVar("T")
R = TypeVar("R")


class _ProcessRow(TypedDict):
    """As of Process; ``mnt``: its mount namespace, ``fuse``: (descriptor, connection) …,
    ``threads``: (number, state, what it waits in, of the kernel) …"""

    pid: int
    ppid: int
    comm: str
    state: str
    uid: int | None
    tracer: int
    cgroup: str
    mnt: str
    fuse: list[tuple[int, int | None]]
    threads: list[tuple[int, str, str, bool]]


class _TaskRow(TypedDict):
    """As of Task; ``syscall``: its number, arguments, stack and instruction pointer; ``ran``: ms of
    the clock of its CPU when it last ran."""

    comm: str
    state: str
    wchan: str
    stack: list[str]
    syscall: tuple[int | None, list[int], int | None, int | None]
    ran: float | None
    cpu: int


class _LockRow(TypedDict):
    kind: str
    address: int
    owner: int


class _Cgroup(TypedDict):
    cgroup: str
    frozen: str
    memory: str


class _Details(TypedDict):
    descriptors: list[tuple[int, str]]
    path: str
    lock: _LockRow | None
    address: int


def read(limit: float = LIMIT) -> Moment:
    """This moment of this host."""
    return _Reader(limit).moment()


class _Reader:
    def __init__(self, limit: float) -> None:
        self.begin = time.monotonic()
        self.end = self.begin + limit
        self.silent: list[int] = []
        self.notes: list[str] = []
        self.machine = os.uname().machine

    def each(self, items: Iterable[T], answer: Callable[[T], R]) -> list[R]:
        """What came of those that answered; who did not is silent."""
        results = []
        for item, result in each(items, answer, PATIENCE, self.end):
            if result is None:
                who = item[1] if isinstance(item, tuple) else item
                if isinstance(who, int):
                    self.silent.append(who)
            else:
                results.append(result)
        return results

    def moment(self) -> Moment:
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())
        others = [pid for pid in pids if pid != os.getpid()]
        rows = [row for rows in self.each(others, _process) for row in rows]
        threads = {row["pid"]: row["threads"] for row in rows}
        mounts = self._mounts(rows)
        names = users()
        commands = dict(self.each([row["pid"] for row in rows if row["fuse"]], _arguments))
        processes = {
            row["pid"]: Process(
                pid=row["pid"],
                ppid=row["ppid"],
                comm=row["comm"],
                state=row["state"],
                uid=row["uid"],
                user="" if row["uid"] is None else names.get(row["uid"], str(row["uid"])),
                cgroup=row["cgroup"],
                tracer=row["tracer"],
                fuse=tuple(connection for _, connection in row["fuse"]),
                threads=tuple(tid for tid, *_ in row["threads"]),
                arguments=tuple(commands.get(row["pid"], ())),
            )
            for row in rows
        }
        with fusectl() as (place, directory):
            if directory is not None:
                mounts += _unmounted(directory, {mount.number for mount in mounts})
                mounts = [_counted(mount, directory) for mount in mounts]
        connections = [_with_daemon(mount, processes) for mount in mounts]
        if any(wchan.startswith(AUTOFS) for own in threads.values() for _, _, wchan, _ in own):
            connections += self._autofs(processes)
        holders = {pid for connection in connections for pid in connection.holders}
        near = self._near(holders - {1}, processes) | (holders & {1})
        wanted = [
            (pid, tid)
            for pid, own in threads.items()
            for tid, state, wchan, kernel in own
            if pid in near or _suspicious(state, wchan, kernel)
        ]
        if len(wanted) > MOST_THREADS:
            self.notes.append(f"only {MOST_THREADS:,} of {len(wanted):,} threads were looked at")
            wanted = wanted[:MOST_THREADS]
        tasks = self._tasks(wanted, processes)
        # What they wait for may be a process that nobody has looked at.
        more = {
            pid
            for task in tasks
            for fd in task.descriptors
            for pid in (*fd.other, *(fd.socket.other if fd.socket else ()))
        } - near
        seen = {task.tid for task in tasks}
        further = [
            (pid, tid)
            for pid in self._near(more, processes)
            for tid, *_ in threads.get(pid, ())
            if tid not in seen
        ]
        tasks += self._tasks(further[:MOST_THREADS], processes)
        tasks = self._stacks(tasks, near)
        interesting = near | {task.pid for task in tasks}
        mounted = _hierarchies()
        processes = {
            pid: replace(process, **_cgroup(process.cgroup, mounted))
            for pid, process in processes.items()
            if pid in interesting
        }
        return Moment(
            kernel=os.uname().release,
            connections=tuple(connections),
            processes=tuple(processes.values()),
            tasks=tuple(tasks),
            silent=tuple(dict.fromkeys(self.silent)),
            root=os.geteuid() == 0,
            fusectl=place,
            seconds=time.monotonic() - self.begin,
            notes=tuple(self.notes),
        )

    def _near(self, pids: set[int], processes: dict[int, Process]) -> set[int]:
        """These processes and all below them: ssh below sshfs, a helper of the daemon."""
        children: dict[int, list[int]] = {}
        for process in processes.values():
            children.setdefault(process.ppid, []).append(process.pid)
        found: set[int] = set()
        left = [pid for pid in pids if pid in processes]
        while left:
            pid = left.pop()
            if pid not in found:
                found.add(pid)
                left += children.get(pid, [])
        return found

    def _autofs(self, processes: dict[int, Process]) -> list[Connection]:
        """autofs' mounts of our mount namespace, and who mounts for them: automount, or systemd."""
        found = {}
        for number, path, group in parse_autofs(_text("/proc/self/mountinfo", 16 << 20)):
            holders = (group,) if group in processes else ()
            why = "" if holders else f"process {group}, which mounted it, has ended"
            found[number] = Connection(
                number,
                path,
                "autofs",
                "autofs",
                daemon=group if holders else None,
                holders=holders,
                why=why,
            )
        return list(found.values())

    def _mounts(self, rows: list[_ProcessRow]) -> list[Connection]:
        """Each FUSE connection once, those of our own mount namespace first."""
        own = _link("/proc/self/ns/mnt")
        namespaces: dict[str, int] = {own: os.getpid()} if own else {}
        for row in rows:
            if row["mnt"]:
                namespaces.setdefault(row["mnt"], row["pid"])
        found: dict[int, Connection] = {}
        items = list(namespaces.items())
        for name, pid, text in self.each(items, _mountinfo):
            for mount in parse_mountinfo(text):
                found.setdefault(
                    mount.connection,
                    Connection(
                        number=mount.connection,
                        path=mount.path,
                        fstype=mount.fstype,
                        source=mount.source,
                        seen_by=None if name == own else pid,
                    ),
                )
        return list(found.values())

    def _tasks(
        self, wanted: Sequence[tuple[int, int]], processes: dict[int, Process]
    ) -> list[Task]:
        clocks = _clocks()
        tasks = []
        for pid, tid, row in self.each(wanted, _task):
            if not row or pid not in processes:
                continue
            number, arguments, sp, pc = row["syscall"]
            known = None
            # A process of 32 bits has other numbers.
            if number is not None and number >= 0 and (sp is None or sp >> 32):
                known = syscalls.call(self.machine, number)
            age = None
            if row["ran"] is not None and clocks.get(row["cpu"]) is not None:
                age = max((clocks[row["cpu"]] - row["ran"]) / 1e3, 0.0)
            name = known.name if known else "" if number in (None, -1) else f"syscall_{number}"
            task = Task(
                pid=pid,
                tid=tid,
                comm=row["comm"],
                state=row["state"],
                wchan=row["wchan"],
                stack=tuple(row["stack"]),
                call=name,
                age=age,
                sp=sp or 0,
                pc=pc or 0,
            )
            tasks.append((task, known, arguments))
        detailed = self._arguments(tasks, processes)
        return self._peers(detailed)

    def _arguments(
        self,
        tasks: list[tuple[Task, syscalls.Call | None, list[int]]],
        processes: dict[int, Process],
    ) -> list[Task]:
        """With paths, descriptors, locks and children out of their system calls' arguments."""
        by_tid = {task.tid: (task, call, arguments) for task, call, arguments in tasks}
        waiting = [(task.pid, task.tid) for task, call, _ in tasks if call and task.state in "SD"]

        def details(item: tuple[int, int]) -> tuple[int, _Details]:
            pid, tid = item
            task, call, arguments = by_tid[tid]
            assert call is not None
            return tid, _details(task, call, arguments, processes[pid].threads)

        for tid, found in self.each(waiting, details):
            task, _call, _ = by_tid[tid]
            lock = Lock(**found["lock"]) if found["lock"] else None
            task = replace(
                task,
                path=found["path"],
                descriptors=tuple(Descriptor(n, link) for n, link in found["descriptors"]),
                lock=lock,
                address=found["address"],
            )
            by_tid[tid] = (task, *by_tid[tid][1:])
        below: dict[int, list[int]] = {}
        for process in processes.values():
            below.setdefault(process.ppid, []).append(process.pid)
        return [
            replace(task, children=tuple(below.get(task.pid, ())))
            if task.call in ("wait4", "waitid")
            else task
            for task, _, _ in by_tid.values()
        ]

    def _stacks(self, tasks: list[Task], near: set[int]) -> list[Task]:
        """With the user stacks of daemons' threads that wait for something else than requests."""
        if self.machine != "x86_64":
            return tasks
        asked: dict[int, list[Task]] = {}
        for task in tasks:
            wanted = task.pid in near and task.state in "DS" and task.sp and not task.reads_device
            if wanted and len(asked.setdefault(task.pid, [])) < MOST_STACKS:
                asked[task.pid].append(task)
        found = {}
        for process in asked:  # a child for each: it gives up its rights
            for rows in self.each([process], lambda pid: _user_stacks(pid, asked[pid])):
                found.update({tid: (tuple(names), whole) for tid, names, whole in rows})
        return [
            replace(task, user=found[task.tid][0], user_whole=found[task.tid][1])
            if task.tid in found
            else task
            for task in tasks
        ]

    def _peers(self, tasks: list[Task]) -> list[Task]:
        """With what is at the other ends of sockets and pipes."""
        links = {(task.pid, fd.link) for task in tasks for fd in task.descriptors}
        inodes = {link for _, link in links if link.startswith(("socket:[", "pipe:["))}
        if not inodes:
            return tasks
        tables: dict[str, sockets.Socket] = {}
        namespaces: dict[str, int] = {}
        for pid, link in links:
            if link.startswith("socket:["):
                namespaces.setdefault(_link(f"/proc/{pid}/ns/net"), pid)
        own = _link("/proc/self/ns/net")
        wanted = {int(link[8:-1]) for link in inodes if link.startswith("socket:[")}
        others: dict[str, int] = {}  # the inode at the other end, by a socket's link
        items = [(pid, name == own) for name, pid in namespaces.items()]
        for found in self.each(items, lambda item: sockets.read(item[0], item[1], wanted)):
            for inode, fields, other in found:
                tables[f"socket:[{inode}]"] = sockets.Socket(*fields)
                if other:
                    others[f"socket:[{inode}]"] = other
        ends = {link for link in inodes if link.startswith("pipe:[")}
        ends |= {f"socket:[{inode}]" for inode in others.values()}
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        holders: dict[str, dict[int, str]] = {}
        for rows in self.each(pids, lambda pid: _holding(pid, ends)):
            for pid, link, mode in rows:
                holders.setdefault(link, {})[pid] = holders.get(link, {}).get(pid, "") + mode

        def ended(task: Task, fd: Descriptor) -> Descriptor:
            if fd.link.startswith("pipe:["):
                # Who reads waits for those who can write, and the other way round.
                mode = "r" if task.call in ("write", "writev", "sendfile") else "w"
                held = holders.get(fd.link, {}).items()
                return replace(fd, other=tuple(p for p, m in held if mode in m and p != task.pid))
            socket = tables.get(fd.link)
            if socket and fd.link in others:
                held_by = holders.get(f"socket:[{others[fd.link]}]", {})
                socket = replace(socket, other=tuple(p for p in held_by if p != task.pid))
            return replace(fd, socket=socket)

        return [
            replace(task, descriptors=tuple(ended(task, fd) for fd in task.descriptors))
            for task in tasks
        ]


# What a child answers: each is one process or one thread.


def _text(name: str, most: int = 1 << 20) -> str:
    """At most ``most`` bytes of a file of /proc or /sys; "" where it cannot be read."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts = []
        while most > 0 and (part := os.read(descriptor, min(most, 1 << 16))):
            parts.append(part)
            most -= len(part)
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def _link(name: str) -> str:
    try:
        return os.readlink(name)
    except OSError:
        return ""


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _wchan(place: str) -> str:
    """The function in which a thread sleeps; "0": not known. Kernels whose wchan follows frame
    pointers that they do not have (x86-64 before Linux 5.16) say "0" of each: its stack tells."""
    wchan = _text(f"{place}/wchan")
    if wchan == "0":
        stack = _functions(_text(f"{place}/stack"))
        wchan = next((name for name in stack if not _SCHEDULER.match(name)), wchan)
    return wchan


def _functions(stack: str) -> list[str]:
    return re.findall(r"^\[<[^>]*>\] ([^+\s]+)", stack, re.MULTILINE)


def _process(pid: int) -> list[_ProcessRow]:
    """Of one that has ended nothing."""
    stat = parse_stat(_text(f"/proc/{pid}/stat"))
    if not stat:
        return []
    threads = []
    for name in _names(f"/proc/{pid}/task"):
        task = parse_stat(_text(f"/proc/{pid}/task/{name}/stat"))
        own = task.state if task else "?"
        wchan = _wchan(f"/proc/{pid}/task/{name}") if own in "SD" else ""
        threads.append((int(name), own, wchan, stat.of_kernel))
    status = _text(f"/proc/{pid}/status")
    uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
    tracer = re.search(r"^TracerPid:\s*(\d+)", status, re.MULTILINE)
    fuse = []
    if not stat.of_kernel:
        for name in _names(f"/proc/{pid}/fd"):
            if _link(f"/proc/{pid}/fd/{name}").endswith(FUSE):
                info = _text(f"/proc/{pid}/fdinfo/{name}")
                match = re.search(r"^fuse_connection:\s*(\d{1,10})$", info, re.MULTILINE)
                fuse.append((int(name), int(match[1]) if match else None))
    row: _ProcessRow = {
        "pid": pid,
        "ppid": stat.parent,
        "comm": stat.comm,
        "state": stat.state,
        "uid": int(uid[1]) if uid else None,
        "tracer": int(tracer[1]) if tracer else 0,
        "cgroup": _text(f"/proc/{pid}/cgroup"),
        "mnt": "" if stat.of_kernel else _link(f"/proc/{pid}/ns/mnt"),
        "fuse": fuse,
        "threads": threads,
    }
    return [row]


def _arguments(pid: int) -> tuple[int, list[str]]:
    return pid, _text(f"/proc/{pid}/cmdline", 1 << 16).rstrip("\0").split("\0")


def _mountinfo(item: tuple[str, int]) -> tuple[str, int, str]:
    name, pid = item
    return name, pid, _text(f"/proc/{pid}/mountinfo", 16 << 20)


def _task(item: tuple[int, int]) -> tuple[int, int, _TaskRow | None]:
    pid, tid = item
    place = f"/proc/{pid}/task/{tid}"
    stat = parse_stat(_text(f"{place}/stat"))
    if not stat:
        return pid, tid, None
    ran = re.search(r"^se\.exec_start\s*:\s*([0-9.]+)", _text(f"{place}/sched"), re.MULTILINE)
    stack = _functions(_text(f"{place}/stack"))
    number: int | None = None
    arguments: list[int] = []
    sp = pc = None
    words = _text(f"{place}/syscall").split()
    if words and re.fullmatch(r"-?\d+", words[0]):
        number = int(words[0])
        values = [int(word, 16) for word in words[1:]]
        arguments = values[:6] if number >= 0 else []
        if len(values) >= 2:
            sp, pc = values[-2:]
    row: _TaskRow = {
        "comm": stat.comm,
        "state": stat.state,
        "wchan": _wchan(place) if stat.state in "SD" else "",
        "stack": stack[:64],
        "syscall": (number, arguments, sp, pc),
        "ran": float(ran[1]) if ran else None,
        "cpu": stat.cpu,
    }
    return pid, tid, row


def _details(
    task: Task, call: syscalls.Call, arguments: list[int], threads: tuple[int, ...]
) -> _Details:
    """Of a thread in a system call: the path it is about, its descriptors, its lock."""
    numbers = [_int(arguments[place]) for place in call.descriptors if place < len(arguments)]
    if call.name == "fcntl" and arguments[1] not in (7, 38):  # F_SETLKW, F_OFD_SETLKW
        numbers = numbers[:1]
    lock, address, path = None, 0, ""
    try:
        memory = os.open(f"/proc/{task.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        memory = -1
    try:
        if call.name in ("poll", "ppoll"):
            count = min(arguments[1], 256)
            data = _peek(memory, arguments[0], 8 * count)
            numbers += [fd for fd, _, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8])]
        elif call.name in ("select", "pselect6"):
            count = min(arguments[0], 1024)
            data = _peek(memory, arguments[1], (count + 63) // 64 * 8) if arguments[1] else b""
            bits = int.from_bytes(data, "little")
            numbers += [number for number in range(count) if bits >> number & 1]
        elif call.name.startswith("epoll_"):
            info = _text(f"/proc/{task.pid}/fdinfo/{numbers[0]}") if numbers else ""
            numbers = [int(n) for n in re.findall(r"^tfd:\s*(\d+)", info, re.MULTILINE)[:256]]
        elif call.name == "futex":
            address = arguments[0]
            lock = _lock(memory, task.tid, arguments, threads)
        for directory, place in call.paths:
            name = _string(memory, arguments[place])
            if name is None:
                continue
            if not name.startswith("/"):
                base = "cwd"
                if directory is not None and _int(arguments[directory]) >= 0:
                    base = f"fd/{_int(arguments[directory])}"
                root = _link(f"/proc/{task.pid}/{base}")
                name = os.path.join(root, name) if root.startswith("/") else name
            path = path or os.path.normpath(name)
    finally:
        if memory >= 0:
            os.close(memory)
    descriptors = [(number, _link(f"/proc/{task.pid}/fd/{number}")) for number in numbers]
    if not path and len(descriptors) == 1 and descriptors[0][1].startswith("/"):
        path = descriptors[0][1]
    return {
        "descriptors": [row for row in descriptors if row[1]],
        "path": path,
        "lock": lock,
        "address": address,
    }


def _user_stacks(pid: int, tasks: list[Task]) -> list[tuple[int, list[str], bool]]:
    """(thread, functions innermost first, whether up to where it began). In a child, which has no
    rights any more afterwards: what it opens as root it reads as nobody."""
    parts = parse_maps(_text(f"/proc/{pid}/maps", 16 << 20))
    places: dict[str, str] = {}
    for part in parts:
        if part.path.startswith("/") and part.path not in places and len(places) < MOST_FILES:
            with contextlib.suppress(OSError):
                name = f"/proc/{pid}/map_files/{part.start:x}-{part.end:x}"
                places[part.path] = f"/proc/self/fd/{open_regular(name)}"
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        threads = [(task.pc, task.sp, _peek(memory, task.sp, STACK)) for task in tasks]
    finally:
        os.close(memory)
    native.keep_vdso()
    drop_privileges()
    rows = [
        (part.start, part.end, part.offset, part.path, places.get(part.path, "/nowhere"))
        for part in parts
    ]
    stacks = native.live_stacks(rows, threads)
    return [(task.tid, names, whole) for task, (names, whole) in zip(tasks, stacks)]


def _int(value: int) -> int:
    """The int that a register holds."""
    return (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)


def _peek(memory: int, address: int, size: int) -> bytes:
    """What is there of ``size`` bytes of a process's memory."""
    if memory < 0 or not 0 < address < 1 << 63 or size <= 0:
        return b""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""


def _string(memory: int, address: int) -> str | None:
    """A string that ends with NUL; up to the end of a page first: the next may not be there."""
    data = b""
    while len(data) < LONGEST_PATH:
        part = _peek(memory, address + len(data), 4096 - (address + len(data)) % 4096)
        if not part:
            return None
        data += part
        if b"\0" in part:
            return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return None


# futex(2)'s operations, without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
_WAIT, _LOCK_PI, _WAIT_BITSET, _LOCK_PI2 = 0, 6, 9, 13


def _lock(memory: int, tid: int, arguments: list[int], threads: tuple[int, ...]) -> _LockRow | None:
    """Who holds the lock that a thread waits for, where its library notes that in the lock.

    glibc: pthread_mutex_t has __lock, __count, __owner, __nusers, __kind; pthread_rwlock_t has
    __readers, __writers, __wrphase_futex, __writers_futex, two words of padding, __cur_writer,
    __shared (sysdeps/nptl/bits/struct_mutex.h, struct_rwlock.h). musl and locks with priority
    inheritance have the owner in the futex itself. All that is there must fit, since what lies
    behind a condition's futex is anything.
    """
    address, operation = arguments[0], arguments[1] & ~(128 | 256)

    def owner(word: int) -> bool:
        return word in threads and word != tid

    words = _words(memory, address - 12, 13)
    if len(words) < 13:
        return None
    at = words[3:]  # the futex's word first
    if operation in (_LOCK_PI, _LOCK_PI2):
        held = at[0] & 0x3FFFFFFF
        return {"kind": "mutex", "address": address, "owner": held} if owner(held) else None
    if operation == _WAIT:
        users, kind = at[3], at[4]
        if at[0] in (1, 2) and owner(at[2]) and users < 1 << 20 and kind < 1 << 10:
            return {"kind": "mutex", "address": address, "owner": at[2]}
        held = at[0] & 0x3FFFFFFF
        if at[0] >> 31 and owner(held):  # musl: its waiters are noted in the highest bit
            return {"kind": "mutex", "address": address, "owner": held}
    if operation in (_WAIT, _WAIT_BITSET):
        # From the futex that readers wait for, __readers is 2 words back; from that of writers, 3.
        for back in (2, 3):
            lock = words[3 - back :]
            if lock[0] & 3 == 3 and lock[4] == lock[5] == 0 and owner(lock[6]) and lock[7] < 2:
                return {"kind": "rwlock", "address": address - 4 * back, "owner": lock[6]}
    return None


def _words(memory: int, address: int, count: int) -> tuple[int, ...]:
    data = _peek(memory, address, 4 * count)
    return struct.unpack(f"={len(data) // 4}I", data[: len(data) // 4 * 4])


def _holding(pid: int, links: set[str]) -> list[tuple[int, str, str]]:
    """(pid, link, "r", "w" or "rw") of a process's descriptors that are one of these."""
    found = []
    for name in _names(f"/proc/{pid}/fd"):
        link = _link(f"/proc/{pid}/fd/{name}")
        if link in links:
            flags = re.search(
                r"^flags:\s*0?(\d+)", _text(f"/proc/{pid}/fdinfo/{name}"), re.MULTILINE
            )
            mode = int(flags[1], 8) & 3 if flags else 2
            found.append((pid, link, ("r", "w", "rw")[min(mode, 2)]))
    return found


# The rest


def users() -> dict[int, str]:
    """Names by uid, of /etc/passwd alone: other databases may hang."""
    fields = (line.split(":") for line in _text("/etc/passwd").splitlines())
    return {int(row[2]): row[0] for row in fields if len(row) > 2 and row[2].isdecimal()}


def owner(pid: int) -> tuple[int | None, str]:
    """A process's user and cgroup; None and "" of one that has ended. Neither file waits for the
    process's memory."""
    uid = re.search(r"^Uid:\s*(\d+)", _text(f"/proc/{pid}/status"), re.MULTILINE)
    if not uid:
        return None, ""
    lines = [[*line.split(":", 2), "", ""][:3] for line in _text(f"/proc/{pid}/cgroup").split("\n")]
    # Version 2's if it tells anything, else any of version 1's.
    paths = sorted((bool(names), path) for _, names, path in lines if path.startswith("/"))
    return int(uid[1]), next((path for _, path in paths if path != "/"), "/")


def _suspicious(state: str, wchan: str, kernel: bool) -> bool:
    """Whether a thread may wait for a file system."""
    if state == "D":
        return True
    return state == "S" and not kernel and not _IDLE.match(wchan or "0")


def _clocks() -> dict[int, float]:
    """The scheduler's clock (ms) of each CPU at one moment, by se.exec_start of a thread that runs
    there. It leaves out the time that interrupts and the hypervisor took: each CPU has its own.
    """
    clocks = {}
    usual = os.sched_getaffinity(0)
    moment = time.monotonic()
    try:
        for cpu in sorted(usual):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {cpu})
                # On a busy CPU its turn may come later, or be over between the two clocks.
                tried = [one for one in (_clock() for _ in range(3)) if one is not None]
                if tried:
                    _, at, clock = min(tried)
                    clocks[cpu] = clock - (at - moment) * 1e3
    finally:
        os.sched_setaffinity(0, usual)
    return clocks


def _clock() -> tuple[float, float, float] | None:
    """(s that it took to read, time.monotonic(), ms of the clock of this CPU)."""
    time.sleep(0.0001)  # switched in again, it has a fresh stamp
    begin = time.monotonic()
    text = _text("/proc/thread-self/sched") or _text("/proc/self/sched")
    took = time.monotonic() - begin
    match = re.search(r"^se\.exec_start\s*:\s*([0-9.]+)", text, re.MULTILINE)
    return (took, begin, float(match[1])) if match else None


def _with_daemon(mount: Connection, processes: dict[int, Process]) -> Connection:
    """With the process that answers it, and all that have its /dev/fuse open."""
    holders = [p for p in processes.values() if p.fuse]
    own = [p for p in holders if mount.number in p.fuse]
    if not own:
        unknown = [p for p in holders if None in p.fuse]
        own = [p for p in unknown if names_mount(p.arguments, mount.path)]
        if not own:
            why = "no process here has its connection open"
            if unknown:
                why = "this kernel does not tell which process answers it"
            return replace(mount, why=why)
    # CernVM-FS has a watchdog beside its client: the client has the threads.
    alive = [p for p in own if p.state != "Z"] or own
    daemon = max(alive, key=lambda p: (len(p.threads), -p.pid))
    return replace(mount, daemon=daemon.pid, holders=tuple(sorted(p.pid for p in own)))


def _hierarchies() -> dict[str, str]:
    """Where cgroups are mounted: by controller, "" for version 2's."""
    found: dict[str, str] = {}
    for line in _text("/proc/self/mounts", 16 << 20).split("\n"):
        fields = line.split()
        if len(fields) > 3 and fields[2] == "cgroup2":
            found.setdefault("", fields[1])
        elif len(fields) > 3 and fields[2] == "cgroup":
            for name in ("freezer", "memory"):
                if name in fields[3].split(","):
                    found.setdefault(name, fields[1])
    return found


def _cgroup(text: str, mounted: dict[str, str]) -> _Cgroup:
    """Of /proc/PID/cgroup: the cgroup, which one above it is frozen, and whose memory is full."""
    found: _Cgroup = {"cgroup": "", "frozen": "", "memory": ""}
    for line in text.split("\n"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if ".." in path.split("/"):  # outside of our cgroup namespace
            continue
        names = controllers.split(",") if controllers else [""]
        for name in names:
            if name not in mounted or not path.startswith("/"):
                continue
            place = path
            while place != "/":
                base = mounted[name] + place
                if _frozen(name, base):
                    found["frozen"] = base
                if _full(name, base):
                    found["memory"] = base
                place = os.path.dirname(place)
        if not controllers or not found["cgroup"]:
            found["cgroup"] = path
    return found


def _frozen(controller: str, base: str) -> bool:
    if controller == "freezer":
        return _text(f"{base}/freezer.state").strip() in ("FROZEN", "FREEZING")
    return not controller and _text(f"{base}/cgroup.freeze").strip() == "1"


def _full(controller: str, base: str) -> bool:
    names = {"": ("memory.max", "memory.current")}
    names["memory"] = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    if controller not in names:
        return False
    limit, used = (_text(f"{base}/{name}").strip() for name in names[controller])
    return limit.isdecimal() and used.isdecimal() and int(used) >= 0.98 * int(limit)


def _counted(connection: Connection, directory: int) -> Connection:
    waiting, limit = (
        counter(directory, connection.number, name) for name in ("waiting", "max_background")
    )
    return replace(connection, waiting=waiting, max_background=limit)


def counter(directory: int, connection: int, name: str) -> int | None:
    """A number that fusectl shows of a connection; None where it cannot be read."""
    try:
        descriptor = os.open(f"{connection}/{name}", os.O_RDONLY, dir_fd=directory)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 64).decode("ascii", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return int(text) if text.isdecimal() else None


def _unmounted(directory: int, known: set[int]) -> list[Connection]:
    """Connections that are mounted nowhere: somebody still waits on one that was unmounted."""
    numbers = [int(name) for name in os.listdir(directory) if name.isdecimal()]
    return [Connection(number, "", "", "") for number in numbers if number not in known]


FSOPEN, FSCONFIG, FSMOUNT = (
    430,
    431,
    432,
)  # system calls of Linux 5.2 and later, the same everywhere
FSCONFIG_CMD_CREATE = 6


@contextlib.contextmanager
def fusectl() -> Iterator[tuple[str, int | None]]:
    """(place, descriptor of) the directory of the FUSE connections.

    Where fusectl is not mounted, a mount of it that has no place in any namespace and ends with its
    descriptor (fsopen(2), Linux 5.2); (…, None) where neither can be had.
    """
    place = ""
    for line in _text("/proc/self/mountinfo", 16 << 20).split("\n"):
        before, _, after = line.partition(" - ")
        if after.startswith("fusectl "):
            place = before.split(" ")[4]
    descriptors: list[int] = []
    try:
        if place:
            with contextlib.suppress(OSError):
                descriptors.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY))
        elif os.geteuid() == 0:
            libc = ctypes.CDLL(None, use_errno=True)
            context = libc.syscall(FSOPEN, b"fusectl", 1)
            if context >= 0:
                descriptors.append(context)
                if libc.syscall(FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0) == 0:
                    mounted = libc.syscall(FSMOUNT, context, 1, 0)
                    if mounted >= 0:
                        descriptors.append(mounted)
                        flags = os.O_RDONLY | os.O_DIRECTORY
                        descriptors.append(os.open(".", flags, dir_fd=mounted))
        wanted = 1 if place else 3
        yield place, descriptors[-1] if len(descriptors) == wanted else None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
