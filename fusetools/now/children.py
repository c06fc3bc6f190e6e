"""What a child answers about one process or one thread of this host, as plain rows.

It reads what may block; fusetools.now.machine starts it, and gives it a time limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Callable
from mmap import PAGESIZE
from pathlib import Path
from typing import TypedDict

from fusetools.core import native
from fusetools.host.files import Files, open_regular
from fusetools.host.mounts import FUSE_TYPES
from fusetools.host.processes import access, is_fuse, parse_connection, parse_maps, parse_stat
from fusetools.host.rights import drop_privileges
from fusetools.now.moment import Task

MOST_FILES = 500  # of a process, whose functions are named
STACK = 64 << 10  # bytes of a thread's stack that are read
HOST = Files(Path("/"))

_SCHEDULER = re.compile("_*(io_)?schedule")


# Its number, state, the function it sleeps in ("0": not shown), whether it is a kernel thread.
ThreadRow = tuple[int, str, str, bool]


class ProcessRow(TypedDict):
    """As in Process; ``mnt``: its mount namespace, ``root``: its root directory, ``fuse``:
    (descriptor, connection) …"""

    pid: int
    ppid: int
    comm: str
    state: str
    uid: int | None
    tracer: int
    cgroup: str
    mnt: str
    root: str
    fuse: list[tuple[int, int | None]]
    threads: list[ThreadRow]


class TaskRow(TypedDict):
    """As in Task, ``tracer`` 0 unless it is stopped; ``syscall``: its number, arguments, stack and
    instruction pointer; ``ran``: ms of the clock of its CPU when it last ran, 0 if it was moved to
    that one asleep, None if the kernel does not show it; ``switches``: how often it gave up its
    CPU."""

    comm: str
    state: str
    wchan: str
    stack: list[str]
    syscall: tuple[int | None, list[int], int | None, int | None]
    ran: float | None
    switches: int
    cpu: int
    tracer: int


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
    return b"".join(parts).decode("utf-8", "surrogateescape")


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


def _functions(place: str) -> list[str]:
    stack = text(f"{place}/stack")
    return re.findall(r"^\[<[^>]*>\] ([^+\s]+)", stack, re.MULTILINE)


def _sleeps_in(stack: list[str]) -> str:
    return next((name for name in stack if not _SCHEDULER.match(name)), "0")


def sleeps_in(item: tuple[list[int], int]) -> list[tuple[int, str]]:
    """The functions in which threads of a process sleep, "0": unknown. Kernels whose wchan follows
    frame pointers that they do not have (x86-64 before Linux 5.16) show "0" for each: then its
    stack shows it, which before Linux 5.7 nobody can read while the process is in execve."""
    threads, pid = item
    return [(tid, _sleeps_in(_functions(f"/proc/{pid}/task/{tid}"))) for tid in threads]


def process(pid: int) -> list[ProcessRow]:
    """A process's row; none if it has ended."""
    stat = parse_stat(text(f"/proc/{pid}/stat"))
    if not stat:
        return []
    threads = []
    for name in names(f"/proc/{pid}/task"):
        task = parse_stat(text(f"/proc/{pid}/task/{name}/stat"))
        own = task.state if task else "?"
        wchan = text(f"/proc/{pid}/task/{name}/wchan") if own in "SD" else ""
        threads.append((int(name), own, wchan, stat.of_kernel))
    # Its main thread may have ended before the others; it has no descriptors then.
    alive = [(tid, state) for tid, state, _, _ in threads if state not in "ZX?"]
    state, place = stat.state, f"/proc/{pid}"
    if state in "ZX" and alive:
        state, place = alive[0][1], f"/proc/{pid}/task/{alive[0][0]}"
    status = text(f"/proc/{pid}/status")
    uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
    fuse = []
    if not stat.of_kernel:
        for name in names(f"{place}/fd"):
            if is_fuse(HOST, f"{place}/fd/{name}", link(f"{place}/fd/{name}")):
                info = text(f"{place}/fdinfo/{name}")
                fuse.append((int(name), parse_connection(info)))
    row: ProcessRow = {
        "pid": pid,
        "ppid": stat.parent,
        "comm": stat.comm,
        "state": state,
        "uid": int(uid[1]) if uid else None,
        "tracer": _tracer(status),
        "cgroup": text(f"/proc/{pid}/cgroup"),
        "mnt": "" if stat.of_kernel else link(f"{place}/ns/mnt"),
        "root": "" if stat.of_kernel else link(f"{place}/root"),
        "fuse": fuse,
        "threads": threads,
    }
    return [row]


def _tracer(status: str) -> int:
    tracer = re.search(r"^TracerPid:\s*(\d+)", status, re.MULTILINE)
    return int(tracer[1]) if tracer else 0


def arguments(pid: int) -> tuple[int, list[str]]:
    return pid, text(f"/proc/{pid}/cmdline", 1 << 16).rstrip("\0").split("\0")


def mountinfo(item: tuple[object, int]) -> tuple[object, int, str]:
    name, pid = item
    return name, pid, text(f"/proc/{pid}/mountinfo", 16 << 20)


def of_fuse(item: tuple[object, int]) -> tuple[object, int, str]:
    """Of a mountinfo only the lines of FUSE mounts: a host of containers has thousands of others in
    each of hundreds of namespaces."""
    name, pid, mounts = mountinfo(item)
    kinds = tuple(f" - {kind}" for kind in FUSE_TYPES)
    lines = (line for line in mounts.split("\n") if any(kind in line for kind in kinds))
    return name, pid, "\n".join(lines)


def task(item: tuple[int, int]) -> tuple[int, int, TaskRow | None]:
    pid, tid = item
    place = f"/proc/{pid}/task/{tid}"
    stat = parse_stat(text(f"{place}/stat"))
    if not stat:
        return pid, tid, None
    status = text(f"{place}/status")
    switches = re.findall(r"ctxt_switches:\s*([0-9]+)", status)
    stack = _functions(place)
    wchan = text(f"{place}/wchan") if stat.state in "SD" else ""
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
        "wchan": _sleeps_in(stack) if wchan == "0" else wchan,
        "stack": stack[:64],
        "syscall": (number, arguments, sp, pc),
        "ran": _ran(text(f"{place}/sched")),
        "switches": sum(map(int, switches)),
        "cpu": stat.cpu,
        "tracer": _tracer(status) if stat.state in "Tt" else 0,
    }
    return pid, tid, row


def clock(cpu: str) -> tuple[int, float, float] | None:
    """(CPU, time.monotonic(), the ms of that CPU's clock then), by se.exec_start of this process,
    which runs there from now on. The clock excludes the time that interrupts and the hypervisor
    took: each CPU has its own. None: it cannot run there."""
    samples = []
    try:
        os.sched_setaffinity(0, {int(cpu)})
    except OSError:
        return None
    for _ in range(3):  # it may run later, or lose the CPU between the two clocks
        time.sleep(0.0001)  # switched in again, it has a fresh stamp
        begin = time.monotonic()
        sched = text("/proc/self/sched")
        took = time.monotonic() - begin
        if ran := _ran(sched):
            samples.append((took, begin, ran))
    return (int(cpu), *min(samples)[1:]) if samples else None


def _ran(sched: str) -> float | None:
    ran = re.search(r"^se\.exec_start\s*:\s*([0-9.]+)", sched, re.MULTILINE)
    return float(ran[1]) if ran else None


def user_stacks(
    pid: int, tasks: list[Task], hangs: Callable[[int, str], bool], mounts: list[str]
) -> list[tuple[int, list[str], bool]]:
    """(thread, functions innermost first, whether down to the thread's start). For a child, which
    gives up its rights here: it opens files as root and reads them as nobody. ``hangs``: whether a
    mapped file (its device, its path) may, and is not touched; ``mounts``: mount points of file
    systems that may."""
    place = f"/proc/{pid}/task/{tasks[0].tid}"  # the main thread may have ended
    parts = parse_maps(text(f"{place}/maps", 16 << 20))
    places: dict[str, str] = {}
    for part in parts:
        major, _, minor = part.device.partition(":")
        if hangs(int(major, 16) << 20 | int(minor, 16), part.path):
            continue
        if part.path.startswith("/") and part.path not in places and len(places) < MOST_FILES:
            with contextlib.suppress(OSError):
                name = f"/proc/{pid}/map_files/{part.start:x}-{part.end:x}"
                places[part.path] = f"/proc/self/fd/{open_regular(name)}"
    with Memory(place) as memory:
        threads = [(task.pc, task.sp, memory.peek(task.sp, STACK)) for task in tasks]
    native.keep_vdso()
    drop_privileges()
    rows = [
        (part.start, part.end, part.offset, _text(part.path), places.get(part.path, "/nowhere"))
        for part in parts
    ]
    stacks = native.live_stacks(rows, threads, mounts)
    return [(task.tid, names, whole) for task, (names, whole) in zip(tasks, stacks)]


def _text(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Memory:
    """A process's memory, by its directory in /proc, or a thread's; none if it cannot be read.

    Only pages that it has are read (proc_pid_pagemap(5)): for one of a mapped file the kernel would
    ask its file system, which may hang, and keep the process's memory map locked meanwhile.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._memory = self._pages = -1

    def __enter__(self) -> Memory:
        with contextlib.suppress(OSError):
            self._pages = os.open(f"{self._place}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self._memory = os.open(f"{self._place}/mem", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._pages, self._memory):
            if descriptor >= 0:
                os.close(descriptor)

    def peek(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes."""
        if self._memory < 0 or not 0 < address < 1 << 63 or size <= 0:
            return b""
        first, last = address // PAGESIZE, (address + size - 1) // PAGESIZE
        try:
            entries = os.pread(self._pages, 8 * (last + 1 - first), 8 * first)
            # Their two highest bits: in memory, swapped out.
            words = struct.unpack(f"={len(entries) // 8}Q", entries[: len(entries) // 8 * 8])
            there = next(
                (number for number, word in enumerate(words) if not word >> 62), len(words)
            )
            size = min(size, (first + there) * PAGESIZE - address)
            return os.pread(self._memory, size, address) if size > 0 else b""
        except (OSError, OverflowError):
            return b""


def holding(pid: int, links: set[str]) -> list[tuple[int, str, str]]:
    """(pid, link, "r", "w" or "rw") of a process's descriptors that are one of these."""
    rows = []
    for name in names(f"/proc/{pid}/fd"):
        opened = link(f"/proc/{pid}/fd/{name}")
        if opened in links:
            rows.append((pid, opened, access(text(f"/proc/{pid}/fdinfo/{name}"))))
    return rows
