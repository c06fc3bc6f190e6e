"""Which processes have the files open that matter here; one pass over /proc."""

from __future__ import annotations

import os
import re
import select
import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from fusetools.host.files import Files, bounded

FUSE = "/fuse"  # /dev/fuse, under whatever directory a container has it
PERF_EVENT = "anon_inode:[perf_event]"
TRACEFS = "/tracing/"


def open_files(files: Files) -> dict[int, list[tuple[str, str]]]:
    """(descriptor, what it is) of /dev/fuse, perf events and tracefs files, by pid.

    Unprivileged, only this user's processes are seen.
    """
    found: dict[int, list[tuple[str, str]]] = {}
    for name in files.list("/proc"):
        if not name.isdecimal():
            continue
        for number in files.list(f"/proc/{name}/fd"):
            link = files.link(f"/proc/{name}/fd/{number}")
            if link.endswith(FUSE) or link == PERF_EVENT or TRACEFS in link:
                found.setdefault(int(name), []).append((number, link))
    return dict(sorted(found.items()))


def recorders(files: Files, since: int) -> list[int]:
    """Processes that hold perf events, or are named perf and just end, of those that began at
    ``since`` (clock ticks since the boot) or later: an older one has opened what it records."""
    found = []
    for pid in map(int, filter(str.isdecimal, files.list("/proc"))):
        process = read_stat(files, pid)
        if process is None or process.start < since or process.of_kernel:
            continue
        links = [files.link(f"/proc/{pid}/fd/{number}") for number in files.list(f"/proc/{pid}/fd")]
        ends = not links and process.comm == "perf" and process.state not in "ZX"
        if PERF_EVENT in links or ends:
            found.append(pid)
    return sorted(found)


def streams(files: Files, pid: int) -> tuple[int, ...]:
    """A process's descriptors of sockets, and of pipes that it does not hold both ends of; without
    those that a thread reads from now. That one hands on what comes, as far as can be seen, and
    waits for nothing else: as others do for requests."""

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
            and (link.startswith("socket:") or (link.startswith("pipe:") and ends[link] == 1))
        )

    # "syscall" waits for a process that executes another program.
    numbers = bounded(look, 2.0) if files.live else look()
    return tuple(map(int, (numbers or "").split()))


# read and readv of x86-64, and their descriptor (proc_pid_syscall(5)).
_READING = re.compile(r"(?:0|19) 0x([0-9a-f]{1,8}) ")


def patiently(files: Files, name: str) -> str:
    """A file of /proc that waits for the process's memory: one whose page fault hangs holds its
    lock. "" where it cannot be read in time."""
    if not files.live:
        return files.read(name, quiet=True) or ""
    return bounded(lambda: files.read(name, quiet=True) or "", 2.0) or ""


class Code(NamedTuple):
    """A part of a process's memory that holds code: addresses, the offset in its file, the file."""

    start: int
    end: int
    offset: int
    device: str  # "fe:01"
    inode: int  # 0: of no file, as "[vdso]" is
    path: str


def code(files: Files, pid: int) -> tuple[Code, ...]:
    """What a process has mapped executable."""
    return parse_maps(patiently(files, f"/proc/{pid}/maps"))


def parse_maps(text: str) -> tuple[Code, ...]:
    """What is executable of a /proc/PID/maps (proc(5))."""
    found = []
    for line in text.split("\n"):
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) (\S+) (\d+)\s+(\S.*)", line)
        if match:
            start, end, offset = (int(part, 16) for part in match.group(1, 2, 3))
            path = match[6].replace("\\012", "\n")
            found.append(Code(start, end, offset, match[4], int(match[5]), path))
    return tuple(found)


def lock_holder(files: Files, status: os.stat_result) -> int | None:
    """Who holds the lock that flock(2) gave on a file; None: nobody, or none that is seen here."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    for line in (files.read("/proc/locks", quiet=True) or "").split("\n"):
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == f"{device}:{status.st_ino}":
            return int(fields[4]) if fields[4].isdecimal() and int(fields[4]) > 0 else None
    return None


class Stat(NamedTuple):
    """A process or a thread as the kernel counts it (proc(5), /proc/PID/stat)."""

    comm: str  # may hold anything, also brackets and spaces
    state: str  # "R", "S", "D", "Z" …
    parent: int
    session: int
    flags: int  # PF_… of include/linux/sched.h
    ticks: int  # on a CPU, of user and kernel, in 1 / sysconf(SC_CLK_TCK) s
    start: int  # ticks since boot: tells it from a later one of the same number
    cpu: int  # where it ran last

    @property
    def of_kernel(self) -> bool:
        """A thread of the kernel's own."""
        return bool(self.flags & _PF_KTHREAD)


def parse_stat(text: str) -> Stat | None:
    """A /proc/…/stat; None: it is none, or was cut off."""
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
    """None: there is no such process."""
    return parse_stat(files.read(f"/proc/{pid}/stat", quiet=True) or "")


def cpu_seconds(pid: int) -> float:
    """What a process of this host has used of CPUs, to the ns; 0: it has ended. /proc/PID/stat
    counts it in ticks of 10 ms, which may miss who runs for less at a time."""
    try:
        return time.clock_gettime(~pid << 3 | _SCHED)
    except OSError:
        return 0.0


_SCHED = 2  # CPUCLOCK_SCHED of include/linux/posix-timers.h, in clocks as clock_getcpuclockid(3)


def until_ended(pid: int, seconds: float) -> None:
    """Returns when a child that nobody has waited for yet has ended, or the time is over, or now
    and then."""
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


class Sleeper(NamedTuple):
    """A process and what its first thread sleeps in: a function of the kernel, "" where that is not
    shown. ``hung``: it waits for a file system, and no signal but SIGKILL may end that."""

    pid: int
    comm: str
    function: str
    hung: bool


# What waits for a daemon's answer (fs/fuse/dev.c); reading pages it is in state D.
_REQUESTS = re.compile(r"wait_answer|request_send|fuse_(?!dev_)")


def family(files: Files, pid: int) -> list[Sleeper]:
    """A process and those that descend from it, that are there."""
    found = []
    for one, state in descendants(files, pid).items():
        if state != "Z":
            function = files.read(f"/proc/{one}/wchan", quiet=True) or ""
            function = "" if function == "0" else function
            hung = state == "D" or (state == "S" and _REQUESTS.search(function))
            found.append(Sleeper(one, comm(files, one), function, bool(hung)))
    return found


def descendants(files: Files, pid: int) -> dict[int, str]:
    """The states of a process and of those that descend from it, by pid."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for name in files.list("/proc"):
        process = read_stat(files, int(name)) if name.isdecimal() else None
        if process:
            states[int(name)] = process.state
            children.setdefault(process.parent, []).append(int(name))
    found: dict[int, str] = {}
    left = [pid]
    while left:
        one = left.pop()
        left += children.get(one, [])
        if one in states:
            found[one] = states[one]
    return found


def ancestors(files: Files, pid: int) -> list[int]:
    """A process, and those that it descends from."""
    found: list[int] = []
    while pid > 0 and pid not in found:
        found.append(pid)
        process = read_stat(files, pid)
        pid = process.parent if process else 0
    return found


def threads(files: Files, pids: Iterable[int]) -> list[int]:
    """The numbers of all threads of processes."""
    return [int(name) for pid in pids for name in files.list(f"/proc/{pid}/task")]


class Status(NamedTuple):
    """``process``: its number, another one than asked for where that is a thread's; ``started``:
    clock ticks since the boot; ``uid``: the effective user; ``ended``: only its status is left."""

    process: int
    started: int
    uid: int
    ended: bool
    of_kernel: bool


def status(files: Files, pid: int) -> Status | None:
    """None: there is no such process or thread."""
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
    """The names of a process's threads, each once; sorted."""
    tasks = [name for name in files.list(f"/proc/{pid}/task") if name.isdecimal()]
    names = (files.read(f"/proc/{pid}/task/{task}/comm", quiet=True) for task in tasks)
    return tuple(sorted({name.rstrip("\n") for name in names if name}))
