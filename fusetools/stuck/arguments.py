"""The objects of a blocked system call: paths, descriptors, locks and children, from its arguments.

A child of fusetools.stuck.machine reads them within a time limit, from the thread's own memory and
descriptors. Sources: the man pages of section 2, proc_pid_fdinfo(5); for locks glibc's
sysdeps/nptl/bits/struct_mutex.h and struct_rwlock.h, and musl's src/internal/pthread_impl.h.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import struct
from typing import TypedDict

from fusetools.host.files import absolute
from fusetools.host.memory import Memory
from fusetools.host.processes import parse_connection
from fusetools.stuck import syscalls
from fusetools.stuck.children import link, names, text
from fusetools.stuck.moment import RING, Task

LONGEST_PATH = 4096
MOST_WAITED = 256  # maximum number of descriptors of one poll or epoll
MOST_LOCKS = 4 << 20  # limit in bytes for /proc/locks: any user can hold millions of locks

_SETLKW = (7, 14, 38)  # fcntl's F_SETLKW, the F_SETLKW of 32-bit programs, F_OFD_SETLKW
# Flags of mount(2): remount, bind, move, change of propagation
_MS_OTHER = 0x20 | 0x1000 | 0x2000 | 0xE0000
_FSCONFIG_CREATE = (6, 8)  # FSCONFIG_CMD_CREATE, FSCONFIG_CMD_CREATE_EXCL
_LOCK_NB, _LOCK_UN = 4, 8  # of flock
_FORKS = ("vfork", "fork", "clone", "clone3")
_P_PID, _P_PIDFD = 1, 3


class LockRow(TypedDict):
    """A lock, with fields as in moment.Lock.

    ``sure``: known without the thread's stack; ``shared``: with other processes.
    """

    kind: str
    address: int
    owner: int
    sure: bool
    shared: bool


class PlaceRow(TypedDict):
    """A path.

    ``mount``: the mount id of the descriptor that ``path`` is or begins at, 0 if unknown;
    ``rooted``: an absolute path as the process sees it.
    """

    path: str
    mount: int
    rooted: bool


class MountRow(TypedDict):
    """A mount being made, with fields as in moment.Mounting."""

    fstype: str
    source: str
    connection: int | None


class Details(TypedDict):
    """The objects of a thread's system call.

    ``child``: the child that the thread waits for, -1: any child of its process, 0: none;
    ``descriptors``: number, link, and the process that a pidfd refers to; ``locks``, ``mounts``: as
    in moment.Task.
    """

    descriptors: list[tuple[int, str, int]]
    places: list[PlaceRow]
    lock: LockRow | None
    child: int
    connects: str
    locks: bool
    mounts: MountRow | None


def details(
    task: Task,
    call: syscalls.Call,
    arguments: list[int],
    threads: tuple[int, ...],
    children: tuple[int, ...],
) -> Details:
    """Return the objects of a system call.

    ``threads`` and ``children`` are those of the thread's process.
    """
    place = f"/proc/{task.pid}/task/{task.tid}"
    numbers = [_int(arguments[at]) for at in call.descriptors if at < len(arguments)]
    if call.name == "fcntl" and arguments[1] not in _SETLKW:
        numbers = []
    lock, child, connects = None, 0, ""
    registered: list[tuple[int, str]] = []
    places: list[PlaceRow] = []
    with Memory(place) as memory:
        if call.name in ("poll", "ppoll"):
            data = memory.peek(arguments[0], 8 * min(arguments[1], MOST_WAITED))
            numbers += [fd for fd, _, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8])]
        elif call.name in ("select", "pselect6"):
            count = min(arguments[0], 1024)
            sets = [memory.peek(address, (count + 63) // 64 * 8) for address in arguments[1:3]]
            # Descriptors to be read and to be written
            bits = [int.from_bytes(data, "little") for data in sets]
            numbers += [n for n in range(count) if (bits[0] | bits[1]) >> n & 1]
        elif call.name.startswith("epoll_") and call.name != "epoll_ctl":
            info = text(f"{place}/fdinfo/{numbers[0]}") if numbers else ""
            numbers = [int(n) for n in re.findall(r"^tfd:\s*(\d+)", info, re.MULTILINE)]
            numbers = numbers[:MOST_WAITED]
        elif call.name == "io_uring_enter":
            registered = _of_ring(task.pid, numbers, arguments[3])
        # 32-bit programs have another layout of locks
        elif call.name == "futex" and not task.is_32bit:
            own = _own_numbers(task.pid, threads)
            lock = _lock(memory, arguments, own)
            if lock and lock["shared"] and lock["owner"] not in threads and task.tid not in own:
                lock = None  # the holder of that number in another pid namespace is unknown
        elif call.name == "connect":
            address = memory.peek(arguments[1], min(arguments[2], 128))
            if address[:2] == struct.pack("=H", socket.AF_UNIX):
                name = address[2:]
                # An abstract address begins with NUL; /proc shows "@" in its place.
                name = b"@" + name[1:] if name[:1] == b"\0" else name.partition(b"\0")[0]
                connects = name.decode("utf-8", "surrogateescape")
        elif call.name in ("wait4", "waitid"):
            child = _child(place, call.name, arguments, children)
        elif call.name in _FORKS:
            child = -1
        mounts = _mounts(memory, place, call.name, arguments)
        for directory, at in call.paths:
            path = _string(memory, arguments[at]) if arguments[at] else ""
            base = -1 if directory is None else _int(arguments[directory])
            if path:
                places.append(_place(place, base, path))
            elif path == "" and base >= 0:  # AT_EMPTY_PATH: the file itself, as in glibc's fstat
                numbers.append(base)
    descriptors = registered or [(number, link(f"{place}/fd/{number}")) for number in numbers]
    if not places and len(descriptors) <= 2:
        places = [
            {"path": name, "mount": _mount(place, number), "rooted": False}
            for number, name in descriptors
            if name.startswith("/")
        ]
    return {
        "descriptors": [
            (number, name, _of_pidfd(place, number) if "pidfd" in name else 0)
            for number, name in descriptors
            if name
        ],
        "places": places,
        "lock": lock,
        "child": child,
        "connects": connects,
        "locks": _locks(call.name, arguments),
        "mounts": mounts,
    }


def _locks(call: str, arguments: list[int]) -> bool:
    """Return whether a system call waits for a file lock."""
    if call == "flock":
        return not arguments[1] & (_LOCK_NB | _LOCK_UN)
    return call == "fcntl" and arguments[1] in _SETLKW


def _mounts(memory: Memory, place: str, call: str, arguments: list[int]) -> MountRow | None:
    """Return the mount that a system call makes, known by the option fd of FUSE."""
    if call == "fsconfig":  # fsconfig's context does not show what it was given
        none: MountRow = {"fstype": "", "source": "", "connection": None}
        return none if arguments[1] in _FSCONFIG_CREATE else None
    if call != "mount" or arguments[3] & _MS_OTHER:
        return None
    source, fstype, data = (
        (_string(memory, arguments[at]) if arguments[at] else "") or "" for at in (0, 2, 4)
    )
    number = re.search(r"(?:^|,)fd=(\d{1,9})(?:,|$)", data)
    info = text(f"{place}/fdinfo/{number[1]}") if number else ""
    return {"fstype": fstype, "source": source, "connection": parse_connection(info)}


def _of_ring(pid: int, numbers: list[int], flags: int) -> list[tuple[int, str]]:
    """Return the files registered with the ring of an io_uring_enter, else the ring itself.

    A thread may know its ring by another number (IORING_ENTER_REGISTERED_RING). Then the ring may
    be any of the process: return the files if all rings have the same.
    """
    if flags & 16:
        descriptors = [int(name) for name in names(f"/proc/{pid}/fd") if name.isdecimal()]
        numbers = [n for n in descriptors if link(f"/proc/{pid}/fd/{n}") == RING][:64]
    of_rings: set[tuple[str, ...]] = set()
    for number in numbers:
        _, _, info = text(f"/proc/{pid}/fdinfo/{number}").partition("\nUserFiles:")
        files, _, _ = info.partition("\nUserBufs:")
        of_rings.add(tuple(re.findall(r"^ +\d+: (.+)$", files, re.MULTILINE)[:64]))
    files_of = of_rings.pop() if len(of_rings) == 1 else ()
    return [(number, file) for number in numbers[:1] for file in files_of] or [(-1, RING)]


def _place(place: str, base: int, name: str) -> PlaceRow:
    if name.startswith("/"):
        return {"path": absolute(name), "mount": 0, "rooted": True}
    root = link(f"{place}/fd/{base}" if base >= 0 else f"{place}/cwd")
    path = os.path.join(root, name) if root.startswith("/") else name
    mount = _mount(place, base) if base >= 0 else 0
    return {"path": os.path.normpath(path), "mount": mount, "rooted": False}


def _mount(place: str, number: int) -> int:
    info = re.search(r"^mnt_id:\s*(\d+)", text(f"{place}/fdinfo/{number}"), re.MULTILINE)
    return int(info[1]) if info else 0


def _of_pidfd(place: str, number: int) -> int:
    info = re.search(r"^Pid:\s*(\d+)", text(f"{place}/fdinfo/{number}"), re.MULTILINE)
    return int(info[1]) if info else 0


def mapped(pid: int, tid: int) -> tuple[int, list[tuple[int, str]]]:
    """Return (thread, files that its process has mapped), each file as (device of the file system,
    path).

    A page fault concerns one of these files.
    """
    files: dict[tuple[int, str], None] = {}
    for line in text(f"/proc/{pid}/task/{tid}/maps", 16 << 20).split("\n"):
        match = re.match(r"\S+ \S+ \S+ ([0-9a-f]{1,8}):([0-9a-f]{1,8}) \d+\s+(/.*)", line)
        if match:
            device = int(match[1], 16) << 20 | int(match[2], 16)
            files[device, match[3].replace("\\012", "\n")] = None
    return tid, list(files)


def waiting_for_locks(name: str) -> list[tuple[int, tuple[int, ...]]]:
    """Return the rows of lock_holders(). The file may be very long."""
    return list(lock_holders(text(name, MOST_LOCKS)).items())


def lock_holders(text: str) -> dict[int, tuple[int, ...]]:
    """Return the holders of conflicting file locks by waiting process, from /proc/locks
    (proc_locks(5)).

    A lock of an open file description has no process.
    """
    held: dict[str, int] = {}
    holders: dict[int, tuple[int, ...]] = {}
    for line in text.split("\n"):
        match = re.match(r"(\d+):( *->)? (?:\S+ +){3}(-?\d+) ", line)
        if not match:
            continue
        number, pid = match[1], int(match[3])
        if not match[2]:
            held[number] = pid
        elif pid > 0 and held.get(number, 0) > 0:
            holders[pid] = tuple(dict.fromkeys((*holders.get(pid, ()), held[number])))
    return holders


def _child(place: str, call: str, arguments: list[int], children: tuple[int, ...]) -> int:
    number = _int(arguments[1 if call == "waitid" else 0])
    if call == "waitid":
        if arguments[0] == _P_PIDFD:
            return _of_pidfd(place, number) or -1
        number = number if arguments[0] == _P_PID else -1
    if number <= 0:
        return -1
    return next((pid for pid in children if _number_inside(f"/proc/{pid}", pid) == number), -1)


# Cached by a child that examines a process's threads one after the other
@functools.lru_cache(maxsize=8)
def _own_numbers(pid: int, threads: tuple[int, ...]) -> dict[int, int]:
    """Return a process's threads by the numbers that they have in their own pid namespace."""
    if link("/proc/self/ns/pid") == link(f"/proc/{pid}/ns/pid"):
        return {tid: tid for tid in threads}
    return {_number_inside(f"/proc/{pid}/task/{tid}", tid): tid for tid in threads}


def _number_inside(place: str, tid: int) -> int:
    numbers = re.search(r"^NSpid:\s*([\d\t ]+)", text(f"{place}/status"), re.MULTILINE)
    return int(numbers[1].split()[-1]) if numbers else tid


def _int(value: int) -> int:
    """Return the int that a register holds."""
    return (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)


def _string(memory: Memory, address: int) -> str | None:
    """Read a string that ends with NUL, page by page: the next page may be missing."""
    data = b""
    while len(data) < LONGEST_PATH:
        part = memory.peek(address + len(data), 4096 - (address + len(data)) % 4096)
        if not part:
            return None
        data += part
        if b"\0" in part:
            return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return None


# Operations of futex(2), without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
_WAIT, _LOCK_PI, _WAIT_BITSET, _LOCK_PI2 = 0, 6, 9, 13
_PRIVATE, _REALTIME = 128, 256
_MOST_TASKS = 1 << 22  # PID_MAX_LIMIT
# Types of musl's mutexes that record an owner: recursive, error-checking; also robust or shared
# ones.
_MUSL_OWNED = {kind | more for kind in (1, 2) for more in (0, 4, 128, 132)}


def _lock(memory: Memory, arguments: list[int], threads: dict[int, int]) -> LockRow | None:
    """Return the holder of the lock that a thread waits for, if the C library records it in the
    lock.

    ``threads``: of the process, by the numbers that it knows them by.

    glibc: pthread_mutex_t has __lock, __count, __owner, __nusers, __kind; pthread_rwlock_t has
    __readers, __writers, __wrphase_futex, __writers_futex, two words of padding, __cur_writer,
    __shared; a thread that joins another waits until the number of the other is cleared. musl:
    _m_type, _m_lock; plain mutexes of musl have no owner. Robust locks and those with priority
    inheritance have the owner in the futex itself.

    All values must be plausible, as the memory behind a condition variable's futex is arbitrary.
    The result is not ``sure`` if they may be plausible by chance.
    """
    address, operation = arguments[0], arguments[1] & ~(_PRIVATE | _REALTIME)
    shared = not arguments[1] & _PRIVATE

    def held(kind: str, number: int, sure: bool = True, back: int = 0) -> LockRow:
        return {
            "kind": kind,
            "address": address - back,
            "owner": threads.get(number, number),
            "sure": sure and number in threads,
            "shared": shared,
        }

    at = _words(memory, address, 10)  # the futex's word comes first
    if not at:
        return None
    before = _words(memory, address - 12, 3) or (0, 0, 0)  # may be unmapped
    words = (*before, *at, *(0,) * (10 - len(at)))
    at = words[3:]
    number = at[0] & 0x3FFFFFFF
    if operation in (_LOCK_PI, _LOCK_PI2):
        return held("mutex", number) if number else None
    if operation not in (_WAIT, _WAIT_BITSET):
        return None
    if shared and at[0] in threads and at[0] == arguments[2] & 0xFFFFFFFF:
        return held("thread", at[0])
    # The owner of a mutex is one of its users. Behind other locks there is other data.
    fits = 0 < at[2] < _MOST_TASKS and 0 < at[3] < 1 << 20 and at[4] < 1 << 10
    if fits and (at[0] in (1, 2) or (at[0] >> 31 and number == at[2])):
        return held("mutex", at[2], operation == _WAIT)
    # musl sets the highest bit if there are waiters.
    if operation == _WAIT and at[0] >> 31 and number in threads and words[2] in _MUSL_OWNED:
        return held("mutex", number)
    # __readers is 2 words before the futex of readers, and 3 before that of writers.
    for back in (2, 3):
        lock = words[3 - back :]
        if lock[0] & 3 == 3 and lock[4] == lock[5] == 0 and lock[6] in threads and lock[7] < 2:
            return held("rwlock", lock[6], back=4 * back)
    return None


def _words(memory: Memory, address: int, count: int) -> tuple[int, ...]:
    data = memory.peek(address, 4 * count)
    return struct.unpack(f"={len(data) // 4}I", data[: len(data) // 4 * 4])
