"""Processes that have relevant files open, from one pass over /proc."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import select
import struct
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fusetools.host.files import Files, bounded

PATIENCE = 2.0  # timeout in seconds for what a hung process could delay

FUSE = "/dev/fuse"
PERF_EVENT = "anon_inode:[perf_event]"
TRACEFS = "/tracing/"
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # include/linux/proc_ns.h, PROC_PID_INIT_INO


def in_pid_namespace(files: Files) -> bool:
    """Return whether threads have different numbers here than in the kernel, which hides others."""
    return files.link("/proc/self/ns/pid") not in ("", FIRST_PID_NAMESPACE)


def open_files(files: Files) -> dict[int, list[tuple[str, str]]]:
    """Return the relevant descriptors by pid: (descriptor, kind) of FUSE's device, perf events and
    tracefs files.

    Without privileges, only this user's processes are visible.
    """
    opened: dict[int, list[tuple[str, str]]] = {}
    for name in files.list("/proc"):
        if not name.isdecimal():
            continue
        for number in files.list(f"/proc/{name}/fd"):
            link = files.link(f"/proc/{name}/fd/{number}")
            if is_fuse(files, f"/proc/{name}/fd/{number}", link):
                opened.setdefault(int(name), []).append((number, FUSE))
            elif link == PERF_EVENT or TRACEFS in link:
                opened.setdefault(int(name), []).append((number, link))
    return dict(sorted(opened.items()))


def is_fuse(files: Files, name: str, link: str) -> bool:
    """Return whether the descriptor ``name`` (/proc/PID/fd/N) is FUSE's device.

    Only descriptors whose ``link`` names a file "fuse" are examined, in whatever directory a
    container has it.
    """
    if not link.endswith(("/fuse", "/fuse (deleted)")):
        return False
    return is_fuse_device(name) if files.live else True  # a stored tree has no devices


def fuse_descriptors(files: Files, pid: int) -> list[str]:
    """Return a process's descriptors of FUSE's device, whatever name the file has."""
    names = ((number, f"/proc/{pid}/fd/{number}") for number in files.list(f"/proc/{pid}/fd"))
    return [number for number, name in names if is_fuse_device(name)]


def is_fuse_device(name: str) -> bool:
    """Return whether a file is FUSE's device, by its device number: any user can name a file
    "fuse".

    Send no request: the file may lie on a hung file system.
    """
    answer = ctypes.create_string_buffer(256)  # struct statx of include/uapi/linux/stat.h
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)  # since glibc 2.28
    if statx is None or statx(_AT_FDCWD, os.fsencode(name), _DONT_SYNC, _TYPE, answer):
        if statx is not None and ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
            return False

        def look() -> str:
            status = os.stat(name)
            return "yes" if (status.st_mode & 0o170000, status.st_rdev) == _DEVICE else ""

        return bounded(look, PATIENCE) == "yes"
    (mode,) = struct.unpack_from("=H", answer, 28)
    return (mode & 0o170000, os.makedev(*struct.unpack_from("=II", answer, 128))) == _DEVICE


_AT_FDCWD, _DONT_SYNC, _TYPE = -100, 0x4000, 1
_DEVICE = (0o020000, os.makedev(10, 229))  # S_IFCHR, FUSE_MINOR of include/linux/miscdevice.h


def fuse_connections(files: Files, pid: int, numbers: Iterable[str]) -> set[int | None]:
    """Return the connections of a process's descriptors of FUSE's device.

    None stands for a descriptor that shows no connection: it has no mount, or this kernel does not
    show it.
    """
    infos = (files.read(f"/proc/{pid}/fdinfo/{number}", quiet=True) or "" for number in numbers)
    return {parse_connection(info) for info in infos}


def parse_connection(info: str) -> int | None:
    """Return the FUSE connection in a /proc/PID/fdinfo/N."""
    match = re.search(r"^fuse_connection:\s*([0-9]{1,10})$", info, re.MULTILINE)
    return int(match[1]) if match else None


def shows_connections(files: Files) -> bool:
    """Return whether this kernel shows the connection of FUSE's descriptors (Linux 6.18).

    Such a kernel lists the function that shows it.
    """
    return " fuse_dev_show_fdinfo" in (files.read("/proc/kallsyms", quiet=True) or "")


def reads_requests(files: Files, pid: int) -> bool:
    """Return whether a thread of a process waits for its next request right now."""
    return any(
        (files.read(f"/proc/{pid}/task/{thread}/wchan", quiet=True) or "") == "fuse_dev_do_read"
        for thread in files.list(f"/proc/{pid}/task")
    )


def could_serve(uid: int | None, mounter: int | None) -> bool:
    """Return whether a process of the real user ``uid`` can serve a mount of user ``mounter`` (its
    user_id=).

    A daemon that root started may have become another user.
    """
    return mounter in (None, 0) or uid in (None, 0, mounter)


def recorders(files: Files, since: int) -> list[int]:
    """Return new processes that hold perf events, or that are named perf and about to exit.

    ``since``: only processes that began then or later (clock ticks since boot): an older one has
    already opened its events.
    """
    pids = []
    for pid in map(int, filter(str.isdecimal, files.list("/proc"))):
        process = read_stat(files, pid)
        if process is None or process.start < since or process.of_kernel:
            continue
        links = [files.link(f"/proc/{pid}/fd/{number}") for number in files.list(f"/proc/{pid}/fd")]
        ends = not links and process.comm == "perf" and process.state not in "ZX"
        if PERF_EVENT in links or ends:
            pids.append(pid)
    return sorted(pids)


def streams(files: Files, pid: int) -> tuple[int, ...]:
    """Return a process's descriptors of sockets, and of pipes from which it can read.

    Descriptors that a thread is reading from are left out. Such a thread probably forwards data and
    waits for nothing else, as other threads wait for requests.
    """

    def look() -> str:
        links = {
            int(number): files.link(f"/proc/{pid}/fd/{number}")
            for number in files.list(f"/proc/{pid}/fd")
            if number.isdecimal()
        }
        ends = Counter(links.values())
        read = set()
        for thread in files.list(f"/proc/{pid}/task"):
            call = files.read(f"/proc/{pid}/task/{thread}/syscall", quiet=True) or ""
            if match := _READING.match(call):
                read.add(int(match[1], 16))
        return " ".join(
            str(number)
            for number, link in sorted(links.items())
            if number not in read
            and (
                link.startswith("socket:")
                or (link.startswith("pipe:") and ends[link] == 1 and "r" in of(number))
            )
        )

    def of(number: int) -> str:
        return access(files.read(f"/proc/{pid}/fdinfo/{number}", quiet=True) or "")

    # "syscall" blocks for a process that executes another program.
    numbers = bounded(look, PATIENCE) if files.live else look()
    return tuple(map(int, (numbers or "").split()))


def access(text: str) -> str:
    """Return how a descriptor was opened: "r", "w" or "rw", by its /proc/PID/fdinfo
    (proc_pid_fdinfo(5)).

    Return "rw" if that is unknown.
    """
    flags = re.search(r"^flags:\s+([0-7]{1,12})$", text, re.MULTILINE)
    mode = int(flags[1], 8) & os.O_ACCMODE if flags else os.O_RDWR
    return {os.O_RDONLY: "r", os.O_WRONLY: "w"}.get(mode, "rw")


# numbers of read and readv on x86-64, as proc_pid_syscall(5) prints them, and the descriptor
_READING = re.compile(r"(?:0|19) 0x([0-9a-f]{1,8}) ")


def patiently(files: Files, *names: str) -> tuple[str, ...]:
    """Read files of /proc that need the lock of a process's memory map; "" after a timeout.

    A hanging page fault holds that lock: then each file is read by a child of its own.
    """

    if not names:
        return ()

    def read() -> str:
        return json.dumps([files.read(name, quiet=True) or "" for name in names])

    answer = bounded(read, PATIENCE) if files.live else read()
    if answer is not None:
        return tuple(json.loads(answer))
    return ("",) if len(names) == 1 else tuple(patiently(files, name)[0] for name in names)


ANONYMOUS = "//anon"  # perf's name for code made at run time, such as by a Java virtual machine


class Code(NamedTuple):
    """A part of a process's memory that holds code: addresses, offset in its file, file."""

    start: int
    end: int
    offset: int
    device: str  # "fe:01"
    inode: int  # 0 without a file, as for "[vdso]"
    path: str


def code(files: Files, pid: int) -> tuple[Code, ...]:
    """Return a process's executable mappings."""
    return parse_maps(*patiently(files, f"/proc/{pid}/maps"))


def parse_maps(text: str) -> tuple[Code, ...]:
    """Return the executable mappings in a /proc/PID/maps (proc(5))."""
    ranges = []
    for line in text.split("\n"):
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) (\S+) (\d+)\s*(\S.*)?", line)
        if match:
            start, end, offset = (int(part, 16) for part in match.group(1, 2, 3))
            path = (match[6] or ANONYMOUS).replace("\\012", "\n")
            ranges.append(Code(start, end, offset, match[4], int(match[5]), path))
    return tuple(ranges)


def lock_holder(files: Files, status: os.stat_result) -> int | None:
    """Return the pid that holds the flock(2) lock of a file; None: no process, or none visible
    here."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    for line in (files.read("/proc/locks", quiet=True) or "").split("\n"):
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == f"{device}:{status.st_ino}":
            return int(fields[4]) if fields[4].isdecimal() and int(fields[4]) > 0 else None
    return None


def holding_lock(files: Files, name: str) -> list[int]:
    """Return this user's processes that hold the flock(2) lock of a file by an open descriptor.

    Processes that inherited the descriptor from the one that took the lock count, too.
    """
    found = []
    for pid in filter(str.isdecimal, files.list("/proc")):
        try:
            ours = os.stat(files.at(f"/proc/{pid}")).st_uid == os.geteuid()
        except OSError:
            continue
        for number in files.list(f"/proc/{pid}/fd") if ours else ():
            info = f"/proc/{pid}/fdinfo/{number}"
            is_it = files.link(f"/proc/{pid}/fd/{number}") == name
            if is_it and "FLOCK" in (files.read(info, quiet=True) or ""):
                found.append(int(pid))
    return sorted(found)


class Stat(NamedTuple):
    """A process or a thread as the kernel accounts for it (proc(5), /proc/PID/stat)."""

    comm: str  # may hold any characters, including brackets and spaces
    state: str  # "R", "S", "D", "Z" …
    parent: int
    session: int
    flags: int  # PF_… of include/linux/sched.h
    ticks: int  # time on a CPU in user space and in the kernel, in 1 / sysconf(SC_CLK_TCK) s
    start: int  # clock ticks since boot; distinguishes it from a later one with the same number
    cpu: int  # CPU on which it last ran

    @property
    def of_kernel(self) -> bool:
        """Return whether this is a kernel thread."""
        return bool(self.flags & _PF_KTHREAD)


def parse_stat(text: str) -> Stat | None:
    """Parse a /proc/…/stat; None if it is malformed or cut off."""
    head, _, tail = text.rpartition(")")
    state, *rest = tail.split() or [""]
    try:
        numbers = [int(field) for field in rest[:36]]
        parent, _, session, _, _, flags, *_ = numbers
        ticks, start, cpu = numbers[10] + numbers[11], numbers[18], numbers[35]
    except (ValueError, IndexError):
        return None
    return Stat(head.partition("(")[2], state, parent, session, flags, ticks, start, cpu)


def read_stat(files: Files, pid: int) -> Stat | None:
    """Return a process's stat; None if there is no such process."""
    return parse_stat(files.read(f"/proc/{pid}/stat", quiet=True) or "")


def started(pid: int) -> int | None:
    """Return a process's start time, which tells it from a later one of the same pid."""
    process = read_stat(Files(Path("/")), pid)
    return process.start if process and process.state != "Z" else None


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process of this host, in ns; 0 if it has ended.

    /proc/PID/stat counts ticks of 10 ms, and misses a process that runs for less at a time.
    """
    try:
        return time.clock_gettime(~pid << 3 | _SCHED)
    except OSError:
        return 0.0


def total_cpu_seconds(files: Files, pid: int) -> float:
    """Return the CPU time of a process and its descendants, with those that have ended.

    It comes in ticks of 10 ms.
    """
    ticks = 0
    for member in descendants(files, pid):
        text = files.read(f"/proc/{member}/stat", quiet=True) or ""
        # utime, stime, cutime, cstime (proc(5))
        ticks += sum(int(word) for word in text.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


# CPUCLOCK_SCHED of include/linux/posix-timers.h; the encoding is that of clock_getcpuclockid(3)
_SCHED = 2


def lowered(pid: int) -> str:
    """Return "nice 19", "SCHED_IDLE" or "SCHED_BATCH" if a process yields to others on a CPU; ""
    if it does not, or has ended."""
    try:
        policy = os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK
        nice = os.getpriority(os.PRIO_PROCESS, pid)
    except OSError:
        return ""
    named = {os.SCHED_IDLE: "SCHED_IDLE", os.SCHED_BATCH: "SCHED_BATCH"}
    return named.get(policy) or (f"nice {nice}" if nice > 0 and policy == os.SCHED_OTHER else "")


def until_ended(pid: int, seconds: float) -> None:
    """Wait until a child that has not been reaped ends, at most for the given time.

    May return earlier.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # before Linux 5.3
        time.sleep(min(seconds, 0.02))
        return
    try:
        poll = select.poll()
        poll.register(descriptor)
        poll.poll(1000 * seconds)
    finally:
        os.close(descriptor)


_GET_INFO, _INFO_EXIT, _INFO_BYTES = 0xC040FF0B, 1 << 3, 64  # include/uapi/linux/pidfd.h
_EXIT_CODE = 48  # fields of /proc/PID/stat after the state


def wait_status(files: Files, pid: int, descriptor: int) -> int | None:
    """Return the status of a process that has ended, as of waitpid(2).

    ``descriptor``: a pidfd of it, -1: none. None if the status is unknown: once its parent has
    taken it, the kernel tells it from Linux 6.15 on (PIDFD_GET_INFO).
    """
    process = read_stat(files, pid)
    if process is not None and process.state == "Z":
        fields = (files.read(f"/proc/{pid}/stat", quiet=True) or "").rpartition(")")[2].split()[1:]
        return int(fields[_EXIT_CODE]) if len(fields) > _EXIT_CODE else None
    info = bytearray(struct.pack("=Q", _INFO_EXIT).ljust(_INFO_BYTES, b"\0"))
    try:
        fcntl.ioctl(descriptor, _GET_INFO, info)
    except (OSError, ValueError):  # ValueError: no descriptor
        return None
    (mask,), (status,) = struct.unpack_from("=Q", info), struct.unpack_from("=i", info, 60)
    return status if mask & _INFO_EXIT else None


def oom_kills(files: Files) -> int:
    """Return how many processes the kernel has ended since boot because memory was used up, also
    that of a cgroup."""
    found = re.search(r"^oom_kill (\d+)$", files.read("/proc/vmstat", quiet=True) or "", re.M)
    return int(found[1]) if found else 0


class Sleeper(NamedTuple):
    """A process and the kernel function in which its first thread sleeps ("" if not shown).

    ``hung``: it waits for a file system, and only SIGKILL may end that wait.
    """

    pid: int
    comm: str
    function: str
    hung: bool


# Functions that wait for a daemon's answer (fs/fuse/dev.c). A thread that reads pages is in state
# D.
_REQUESTS = re.compile(r"wait_answer|request_send|fuse_(?!dev_)")


def family(files: Files, pid: int) -> list[Sleeper]:
    """Return a process and its descendants, without zombies."""
    sleepers = []
    for member, state in descendants(files, pid).items():
        if state != "Z":
            function = files.read(f"/proc/{member}/wchan", quiet=True) or ""
            function = "" if function == "0" else function
            hung = state == "D" or (state == "S" and _REQUESTS.search(function))
            sleepers.append(Sleeper(member, comm(files, member), function, bool(hung)))
    return sleepers


def descendants(files: Files, pid: int) -> dict[int, str]:
    """Return the states of a process and its descendants, by pid."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for name in files.list("/proc"):
        process = read_stat(files, int(name)) if name.isdecimal() else None
        if process:
            states[int(name)] = process.state
            children.setdefault(process.parent, []).append(int(name))
    descended: dict[int, str] = {}
    left = [pid]
    while left:
        number = left.pop()
        left += children.get(number, [])
        if number in states:
            descended[number] = states[number]
    return descended


def ancestors(files: Files, pid: int) -> list[int]:
    """Return a process and its ancestors."""
    pids: list[int] = []
    while pid > 0 and pid not in pids:
        pids.append(pid)
        process = read_stat(files, pid)
        pid = process.parent if process else 0
    return pids


def threads(files: Files, pids: Iterable[int]) -> list[int]:
    """Return the numbers of all threads of processes."""
    return [int(name) for pid in pids for name in files.list(f"/proc/{pid}/task")]


class Status(NamedTuple):
    """A process or a thread.

    ``process``: the number of the process, also for a thread's number; ``started``: clock ticks
    since boot; ``uid``: the effective user; ``ended``: only its exit status is left.
    """

    process: int
    started: int
    uid: int
    ended: bool
    of_kernel: bool


def status(files: Files, pid: int) -> Status | None:
    """Return a process or thread; None if there is no such number."""
    stat = read_stat(files, pid)
    text = files.read(f"/proc/{pid}/status", quiet=True) or ""
    process = re.search(r"^Tgid:\s*(\d+)$", text, re.MULTILINE)
    uids = re.search(r"^Uid:\s*\d+\s+(\d+)", text, re.MULTILINE)
    if stat is None or process is None or uids is None:
        return None
    # The first thread may end before the others.
    ended = stat.state in "ZX" and len(files.list(f"/proc/{pid}/task")) < 2
    return Status(int(process[1]), stat.start, int(uids[1]), ended, stat.of_kernel)


_PF_KTHREAD = 0x00200000  # include/linux/sched.h


def comm(files: Files, pid: int) -> str:
    return (files.read(f"/proc/{pid}/comm", quiet=True) or "?").rstrip("\n")


def thread_comms(files: Files, pid: int) -> tuple[str, ...]:
    """Return the names of a process's threads, each once, sorted."""
    tasks = [name for name in files.list(f"/proc/{pid}/task") if name.isdecimal()]
    names = (files.read(f"/proc/{pid}/task/{task}/comm", quiet=True) for task in tasks)
    return tuple(sorted({name.rstrip("\n") for name in names if name}))


def busy_seconds(files: Files) -> float | None:
    """Return the time that all CPUs have been busy since boot, in seconds; None: unknown.

    Its resolution is a clock tick, usually 10 ms. Waiting for a disk is not busy (proc(5))."""
    first = (files.read("/proc/stat", quiet=True) or "").split("\n", 1)[0].split()
    if len(first) < 8 or first[0] != "cpu" or not all(field.isdigit() for field in first[1:]):
        return None
    user, nice, system, _idle, _iowait, irq, softirq, *more = map(int, first[1:])
    steal = more[0] if more else 0
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
