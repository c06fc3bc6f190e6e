"""What a child answers about one process or one thread of this host, as plain rows.

It reads what may block; fusetools.now.machine starts it, and gives it a time limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from typing import TypedDict

from fusetools.core import native
from fusetools.host.files import open_regular
from fusetools.host.processes import parse_maps, parse_stat
from fusetools.host.rights import drop_privileges
from fusetools.now import syscalls
from fusetools.now.moment import RING, Task

MOST_FILES = 500  # of a process, whose functions are named
STACK = 64 << 10  # bytes of a thread's stack that are read
LONGEST_PATH = 4096
FUSE = "/fuse"  # /dev/fuse, under whatever directory a container has it

_SCHEDULER = re.compile("_*(io_)?schedule")


class ProcessRow(TypedDict):
    """As in Process; ``mnt``: its mount namespace, ``fuse``: (descriptor, connection) …,
    ``threads``: (number, state, function it waits in, whether it is a kernel thread) …"""

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


class TaskRow(TypedDict):
    """As in Task; ``syscall``: its number, arguments, stack and instruction pointer; ``ran``: ms of
    the clock of its CPU when it last ran."""

    comm: str
    state: str
    wchan: str
    stack: list[str]
    syscall: tuple[int | None, list[int], int | None, int | None]
    ran: float | None
    cpu: int


class LockRow(TypedDict):
    kind: str
    address: int
    owner: int


class Details(TypedDict):
    descriptors: list[tuple[int, str]]
    path: str
    lock: LockRow | None
    address: int


def text(name: str, most: int = 1 << 20) -> str:
    """At most ``most`` bytes of a file of /proc or /sys; "" if it cannot be read."""
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


def link(name: str) -> str:
    try:
        return os.readlink(name)
    except OSError:
        return ""


def names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _wchan(place: str) -> str:
    """The function in which a thread sleeps; "0": unknown. Kernels whose wchan follows frame
    pointers that they do not have (x86-64 before Linux 5.16) show "0" for each: then its stack
    shows it."""
    wchan = text(f"{place}/wchan")
    if wchan == "0":
        stack = _functions(text(f"{place}/stack"))
        wchan = next((name for name in stack if not _SCHEDULER.match(name)), wchan)
    return wchan


def _functions(stack: str) -> list[str]:
    return re.findall(r"^\[<[^>]*>\] ([^+\s]+)", stack, re.MULTILINE)


def process(pid: int) -> list[ProcessRow]:
    """A process's row; none if it has ended."""
    stat = parse_stat(text(f"/proc/{pid}/stat"))
    if not stat:
        return []
    threads = []
    for name in names(f"/proc/{pid}/task"):
        task = parse_stat(text(f"/proc/{pid}/task/{name}/stat"))
        own = task.state if task else "?"
        wchan = _wchan(f"/proc/{pid}/task/{name}") if own in "SD" else ""
        threads.append((int(name), own, wchan, stat.of_kernel))
    status = text(f"/proc/{pid}/status")
    uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
    tracer = re.search(r"^TracerPid:\s*(\d+)", status, re.MULTILINE)
    fuse = []
    if not stat.of_kernel:
        for name in names(f"/proc/{pid}/fd"):
            if link(f"/proc/{pid}/fd/{name}").endswith(FUSE):
                info = text(f"/proc/{pid}/fdinfo/{name}")
                match = re.search(r"^fuse_connection:\s*(\d{1,10})$", info, re.MULTILINE)
                fuse.append((int(name), int(match[1]) if match else None))
    row: ProcessRow = {
        "pid": pid,
        "ppid": stat.parent,
        "comm": stat.comm,
        "state": stat.state,
        "uid": int(uid[1]) if uid else None,
        "tracer": int(tracer[1]) if tracer else 0,
        "cgroup": text(f"/proc/{pid}/cgroup"),
        "mnt": "" if stat.of_kernel else link(f"/proc/{pid}/ns/mnt"),
        "fuse": fuse,
        "threads": threads,
    }
    return [row]


def arguments(pid: int) -> tuple[int, list[str]]:
    return pid, text(f"/proc/{pid}/cmdline", 1 << 16).rstrip("\0").split("\0")


def mountinfo(item: tuple[str, int]) -> tuple[str, int, str]:
    name, pid = item
    return name, pid, text(f"/proc/{pid}/mountinfo", 16 << 20)


def task(item: tuple[int, int]) -> tuple[int, int, TaskRow | None]:
    pid, tid = item
    place = f"/proc/{pid}/task/{tid}"
    stat = parse_stat(text(f"{place}/stat"))
    if not stat:
        return pid, tid, None
    ran = re.search(r"^se\.exec_start\s*:\s*([0-9.]+)", text(f"{place}/sched"), re.MULTILINE)
    stack = _functions(text(f"{place}/stack"))
    number: int | None = None
    arguments: list[int] = []
    sp = pc = None
    words = text(f"{place}/syscall").split()
    if words and re.fullmatch(r"-?\d+", words[0]):
        number = int(words[0])
        values = [int(word, 16) for word in words[1:]]
        arguments = values[:6] if number >= 0 else []
        if len(values) >= 2:
            sp, pc = values[-2:]
    row: TaskRow = {
        "comm": stat.comm,
        "state": stat.state,
        "wchan": _wchan(place) if stat.state in "SD" else "",
        "stack": stack[:64],
        "syscall": (number, arguments, sp, pc),
        "ran": float(ran[1]) if ran else None,
        "cpu": stat.cpu,
    }
    return pid, tid, row


def details(
    task: Task, call: syscalls.Call, arguments: list[int], threads: tuple[int, ...]
) -> Details:
    """What a thread's system call refers to: path, descriptors, lock."""
    numbers = [_int(arguments[place]) for place in call.descriptors if place < len(arguments)]
    if call.name == "fcntl" and arguments[1] not in (7, 38):  # F_SETLKW, F_OFD_SETLKW
        numbers = numbers[:1]
    lock, address, path = None, 0, ""
    registered: list[tuple[int, str]] = []
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
            info = text(f"/proc/{task.pid}/fdinfo/{numbers[0]}") if numbers else ""
            numbers = [int(n) for n in re.findall(r"^tfd:\s*(\d+)", info, re.MULTILINE)[:256]]
        elif call.name == "io_uring_enter":
            registered = _of_ring(task.pid, numbers, arguments[3])
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
                root = link(f"/proc/{task.pid}/{base}")
                name = os.path.join(root, name) if root.startswith("/") else name
            path = path or os.path.normpath(name)
    finally:
        if memory >= 0:
            os.close(memory)
    descriptors = [(number, link(f"/proc/{task.pid}/fd/{number}")) for number in numbers]
    descriptors = registered or descriptors
    if not path and len(descriptors) == 1 and descriptors[0][1].startswith("/"):
        path = descriptors[0][1]
    return {
        "descriptors": [row for row in descriptors if row[1]],
        "path": path,
        "lock": lock,
        "address": address,
    }


def _of_ring(pid: int, numbers: list[int], flags: int) -> list[tuple[int, str]]:
    """The files that are registered with an io_uring_enter's ring, else the ring itself. One that a
    thread knows by another number (IORING_ENTER_REGISTERED_RING) may be any of the process: their
    files, if they are the same."""
    if flags & 16:
        descriptors = [int(name) for name in names(f"/proc/{pid}/fd") if name.isdecimal()]
        numbers = [n for n in descriptors if link(f"/proc/{pid}/fd/{n}") == RING][:64]
    found: set[tuple[str, ...]] = set()
    for number in numbers:
        _, _, info = text(f"/proc/{pid}/fdinfo/{number}").partition("\nUserFiles:")
        files, _, _ = info.partition("\nUserBufs:")
        found.add(tuple(re.findall(r"^ +\d+: (.+)$", files, re.MULTILINE)[:64]))
    files_of = found.pop() if len(found) == 1 else ()
    return [(number, file) for number in numbers[:1] for file in files_of] or [(-1, RING)]


def user_stacks(pid: int, tasks: list[Task]) -> list[tuple[int, list[str], bool]]:
    """(thread, functions innermost first, whether down to the thread's start). For a child, which
    gives up its rights here: it opens files as root and reads them as nobody."""
    parts = parse_maps(text(f"/proc/{pid}/maps", 16 << 20))
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
    """Up to ``size`` bytes of a process's memory."""
    if memory < 0 or not 0 < address < 1 << 63 or size <= 0:
        return b""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""


def _string(memory: int, address: int) -> str | None:
    """A string that ends with NUL, read page by page: the next page may be missing."""
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


def _lock(memory: int, tid: int, arguments: list[int], threads: tuple[int, ...]) -> LockRow | None:
    """The holder of the lock that a thread waits for, if its library notes it in the lock.

    glibc: pthread_mutex_t has __lock, __count, __owner, __nusers, __kind; pthread_rwlock_t has
    __readers, __writers, __wrphase_futex, __writers_futex, two words of padding, __cur_writer,
    __shared (sysdeps/nptl/bits/struct_mutex.h, struct_rwlock.h). musl and locks with priority
    inheritance have the owner in the futex itself. All values must fit, as the memory behind a
    condition's futex is arbitrary.
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
        if at[0] >> 31 and owner(held):  # musl: the highest bit marks waiters
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


def holding(pid: int, links: set[str]) -> list[tuple[int, str, str]]:
    """(pid, link, "r", "w" or "rw") of a process's descriptors that are one of these."""
    rows = []
    for name in names(f"/proc/{pid}/fd"):
        opened = link(f"/proc/{pid}/fd/{name}")
        if opened in links:
            flags = re.search(
                r"^flags:\s*0?(\d+)", text(f"/proc/{pid}/fdinfo/{name}"), re.MULTILINE
            )
            mode = int(flags[1], 8) & 3 if flags else 2
            rows.append((pid, opened, ("r", "w", "rw")[min(mode, 2)]))
    return rows
