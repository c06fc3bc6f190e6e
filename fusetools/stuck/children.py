"""Answers of a child about one process or one thread of this host, as plain rows.

The child reads files that may block. fusetools.stuck.machine starts it and limits its time.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from fusetools.core import native
from fusetools.host.files import Files, open_regular
from fusetools.host.memory import Memory
from fusetools.host.mounts import FUSE_TYPES
from fusetools.host.processes import access, is_fuse, parse_connection, parse_maps, parse_stat
from fusetools.host.rights import drop_privileges
from fusetools.stuck.bounded import SLOWEST, Limit, waited_for_cpu
from fusetools.stuck.moment import Task

MOST_FILES = 500  # maximum number of a process's threads whose functions are named
STACK = 64 << 10  # bytes read of a thread's stack
HOST = Files(Path("/"))
SLICE = 256  # threads of a process that are examined before it is another process's turn
# Descriptors per look, the first and later ones: a daemon opens its device early
FEW, MANY = 128, 1024
GLANCES = 20  # glances at a running thread's call before it is looked at
AWAKE = 0.15  # seconds of repeated looks at a running thread, without waits for a CPU
SERVES = "fuse_dev_do_read"  # functions in which a daemon's thread waits for a request
PF_FORKNOEXEC = 0x40  # include/linux/sched.h

_PENDING = re.compile(r"^S(?:ig|hd)Pnd:\s*([0-9a-f]+)", re.MULTILINE)
_SIGKILL = 1 << 8
_PIDFD_GETFD = 438  # Linux 5.6, the same on all architectures
_SCHEDULER = re.compile("_*(io_)?schedule")


# Waits that do not concern a file system: usual ones of threads that wait for work.
_IDLE = re.compile(
    "futex_|poll_schedule_timeout|do_poll|do_sys_poll|do_select|ep_poll|do_epoll_wait|hrtimer_nano"
    "sleep|do_nanosleep|common_nsleep|pipe_|anon_pipe_|wait_for_partner|do_wait|kernel_wait|sigsusp"
    "end|do_sigtimedwait|do_rt_sigtimedwait|inet_csk_accept|skb_wait|__skb_wait|sk_wait|unix_stre"
    "am|unix_accept|unix_wait|wait_woken|n_tty_read|tty_read|msg|semtimedop|do_semtimedop|io_cqring"
    "_wait|read_events|inotify_read|signalfd|timerfd|eventfd|do_syslog|devkmsg|kthread|worker_thread|rescuer|smpboot|fuse_dev_do_read|0$"
)

# A thread: its number, state, and the function in which it sleeps ("0": not shown).
ThreadRow = tuple[int, str, str]


class ProcessRow(TypedDict):
    """A process, with fields as in moment.Process.

    ``start``: clock ticks since boot; ``ran``: clock ticks on a CPU; ``owner``: the user of its
    directory in /proc; ``mnt``: its mount namespace; ``root``: its root directory;
    ``serves``: a thread waits for a request of FUSE; ``via``: a thread that has its descriptors;
    ``threads``: the numbers of all threads; ``waits``: those of the first SLICE threads that may
    wait for a file system.
    """

    pid: int
    ppid: int
    comm: str
    state: str
    start: int
    ran: int
    of_kernel: bool
    forked: bool
    owner: int | None
    mnt: str
    root: str
    serves: bool
    via: int
    threads: list[int]
    waits: list[ThreadRow]


class CloserRow(TypedDict):
    """Further facts of a process, with fields as in moment.Process.

    ``fuse``: (descriptor, connection) of the examined descriptors; ``left``: the next descriptor, 0
    if all were examined.
    """

    pid: int
    uid: int | None
    tracer: int
    cgroup: str
    fuse: list[tuple[int, int | None]]
    left: int


HeldRow = tuple[str, str]  # the link of a descriptor, and "r", "w" or "rw"


class TaskRow(TypedDict):
    """A thread, with fields as in moment.Task.

    ``tracer``: 0 unless the thread is stopped; ``killed``: a SIGKILL is pending; ``syscall``:
    number, arguments, stack and instruction pointer; ``ran``: ms of its CPU's clock when it last
    ran, 0 if it was moved to that CPU while asleep, None if the kernel does not show it;
    ``switches``: how often it gave up its CPU.
    """

    comm: str
    state: str
    wchan: str
    stack: list[str]
    syscall: tuple[int | None, list[int], int | None, int | None]
    ran: float | None
    switches: int
    cpu: int
    tracer: int
    killed: bool


def text(name: str, most: int = 1 << 20) -> str:
    """Return at most ``most`` bytes of a file of /proc or /sys; "" if it cannot be read."""
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


def aborted(item: tuple[int, int]) -> list[int]:
    """Return the process if its descriptor of FUSE's device belongs to an aborted connection.

    The argument is (descriptor, process). poll(2) reports an error on such a descriptor. The mount
    is not touched.
    """
    number, pid = item
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        process = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return []
    copy = libc.syscall(_PIDFD_GETFD, process, number, 0)
    os.close(process)
    if copy < 0:
        return []
    polled = select.poll()
    polled.register(copy, 0)
    events = polled.poll(0)
    os.close(copy)
    return [pid] if any(event & select.POLLERR for _, event in events) else []


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
    """Return the functions in which threads of a process sleep; "0" if unknown.

    Some kernels derive wchan from frame pointers that they lack (x86-64 before Linux 5.16), and
    show "0" for each thread. There the thread's stack shows the function; before Linux 5.7 nobody
    can read the stack while the process is in execve.
    """
    threads, pid = item
    return [(tid, _sleeps_in(_functions(f"/proc/{pid}/task/{tid}"))) for tid in threads]


def process(pid: int) -> list[ProcessRow]:
    """Return the suspicious threads of a process; None if it has ended.

    The cost is low however large the process is.
    """
    place = f"/proc/{pid}"
    stat = parse_stat(text(f"{place}/stat"))
    if not stat:
        return []
    threads = [int(name) for name in names(f"{place}/task")]
    state, via, serves = stat.state, pid, False
    if state in "ZX":
        # The main thread may have ended before the others; then it has no descriptors.
        for tid in threads[:SLICE]:
            task = parse_stat(text(f"{place}/task/{tid}/stat"))
            if task and task.state not in "ZX":
                state, via = task.state, tid
                break
    waits: list[ThreadRow] = []
    if not stat.of_kernel or state == "D":
        serves, waits = _waits(pid, threads[:SLICE])
    row: ProcessRow = {
        "pid": pid,
        "ppid": stat.parent,
        "comm": stat.comm,
        "state": state,
        "start": stat.start,
        "ran": stat.ticks,
        "of_kernel": stat.of_kernel,
        "forked": bool(stat.flags & PF_FORKNOEXEC),
        "owner": owner(pid),
        "mnt": "" if stat.of_kernel else link(f"{place}/task/{via}/ns/mnt"),
        "root": "" if stat.of_kernel else link(f"{place}/task/{via}/root"),
        "serves": serves,
        "via": via,
        "threads": threads,
        "waits": waits,
    }
    return [row]


def owner(pid: int) -> int | None:
    """Return the user of a process's directory in /proc, which is shown even during execve(2)."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def waits(item: tuple[list[int], int]) -> tuple[int, bool, list[ThreadRow]]:
    """Return (process, whether one of these threads waits for a request of FUSE, threads that may
    wait for a file system)."""
    threads, pid = item
    return pid, *_waits(pid, threads)


def _waits(pid: int, threads: list[int]) -> tuple[bool, list[ThreadRow]]:
    serves, rows = False, []
    for tid in threads:
        place = f"/proc/{pid}/task/{tid}"
        wchan = text(f"{place}/wchan") or "0"
        serves = serves or wchan.startswith(SERVES)
        if wchan != "0" and _IDLE.match(wchan) and tid != pid:
            continue
        task = parse_stat(text(f"{place}/stat"))
        if task and is_suspicious(task.state, wchan):
            rows.append((tid, task.state, wchan))
    return serves, rows


def is_suspicious(state: str, wchan: str) -> bool:
    """Return whether a thread may wait for a file system, or was halted in a call on one.

    Also return True if its wait is not shown ("0").
    """
    return state in "DTt" or (state == "S" and (wchan == "0" or not _IDLE.match(wchan)))


def closer(item: tuple[int, int]) -> CloserRow:
    """Return the further facts of a process (the second number), read through a thread that has its
    descriptors (the first number)."""
    via, pid = item
    status = text(f"/proc/{pid}/status")
    uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
    fuse, left = _devices(f"/proc/{pid}/task/{via}", 0)
    return {
        "pid": pid,
        "uid": int(uid[1]) if uid else None,
        "tracer": _tracer(status),
        "cgroup": text(f"/proc/{pid}/cgroup"),
        "fuse": fuse,
        "left": left,
    }


def devices(item: tuple[tuple[int, int], int]) -> tuple[int, list[tuple[int, int | None]], int]:
    """Return the fields of CloserRow (pid, fuse, left) for a process's next descriptors.

    The argument is ((a thread that has them, the first descriptor), pid).
    """
    (via, first), pid = item
    return pid, *_devices(f"/proc/{pid}/task/{via}", first)


def _devices(place: str, first: int) -> tuple[list[tuple[int, int | None]], int]:
    """Look for FUSE's device in some of a process's descriptors, from number ``first`` on.

    Return the descriptors found, and the next number, 0 if there are no more.
    """
    found: list[tuple[int, int | None]] = []
    numbers, following = _descriptors(place, first)
    for number in numbers:
        name = f"{place}/fd/{number}"
        if is_fuse(HOST, name, link(name)):
            found.append((number, parse_connection(text(f"{place}/fdinfo/{number}"))))
    return found, following


def _descriptors(place: str, first: int) -> tuple[Sequence[int], int]:
    """Return some of a process's descriptors, and the next number, 0 if there are no more.

    Numbers below FEW may not be open: to list a large table is more expensive than to try them.
    """
    if first == 0:
        size = re.search(r"^FDSize:\s*(\d+)", text(f"{place}/status"), re.MULTILINE)
        slots = int(size[1]) if size else FEW
        return range(min(slots, FEW)), FEW if slots > FEW else 0
    numbers = _listed(f"{place}/fd", first, MANY)
    return numbers, numbers[-1] + 1 if len(numbers) == MANY else 0


def _listed(directory: str, first: int, most: int) -> list[int]:
    """Return up to ``most`` numbers in a /proc/PID/fd, from ``first`` on.

    The other numbers cost nothing: the position in that directory is a descriptor's number plus 2
    (proc_readfd_common in the kernel's fs/proc/fd.c).
    """
    try:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        os.lseek(opened, first + 2, os.SEEK_SET)
        with os.scandir(opened) as entries:
            return [int(entry.name) for entry in itertools.islice(entries, most)]
    except OSError:
        return []
    finally:
        os.close(opened)


def _tracer(status: str) -> int:
    tracer = re.search(r"^TracerPid:\s*(\d+)", status, re.MULTILINE)
    return int(tracer[1]) if tracer else 0


def arguments(pid: int) -> tuple[int, list[str]]:
    return pid, text(f"/proc/{pid}/cmdline", 1 << 16).rstrip("\0").split("\0")


# Options of libfuse without a value (lib/helper.c).
_FLAGS = ("-f", "-d", "-s")
_LIBFUSE = re.compile(r"/libfuse3?\.so[.\d]*( \(deleted\))?$", re.MULTILINE)


def mounter(item: tuple[frozenset[str], int]) -> list[tuple[int, str, str]]:
    """Return (pid, mount point, sign as in moment.Mounter) of a process that may be about to serve
    a mount.

    The argument is (paths that are asked for, pid).
    """
    asked, pid = item
    _, command = arguments(pid)
    for word in command[1:]:
        if word in asked:
            return [(pid, word, "named")]
    path = last_path(command)
    if path and _LIBFUSE.search(text(f"/proc/{pid}/maps", 16 << 20)):
        return [(pid, path, "library")]
    return []


def last_path(command: Sequence[str]) -> str:
    """Return the last argument of a command line that is no option's value, if it is an absolute
    path: a FUSE file system's mount point."""
    words = zip(command, command[1:])
    plain = [w for b, w in words if w[:1] not in ("", "-") and (b[:1] != "-" or b in _FLAGS)]
    return os.path.normpath(plain[-1]) if plain and plain[-1].startswith("/") else ""


def mountinfo(item: tuple[object, int]) -> tuple[object, int, str]:
    name, pid = item
    return name, pid, text(f"/proc/{pid}/mountinfo", 16 << 20)


def of_fuse(item: tuple[object, int]) -> tuple[object, int, str]:
    """Keep only the lines of FUSE mounts: a host of containers has thousands of other lines in each
    of hundreds of namespaces."""
    name, pid, mounts = mountinfo(item)
    return name, pid, only_fuse(mounts)


def only_fuse(mounts: str) -> str:
    """Return the lines of FUSE mounts in a mountinfo."""
    kinds = tuple(f" - {kind}" for kind in FUSE_TYPES)
    return "\n".join(line for line in mounts.split("\n") if any(kind in line for kind in kinds))


def task(item: tuple[int, int]) -> tuple[int, int, TaskRow | None]:
    pid, tid = item
    place = f"/proc/{pid}/task/{tid}"
    stat = parse_stat(text(f"{place}/stat"))
    if not stat:
        return pid, tid, None
    # Read the call next: a thread that polls is awake again soon.
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
    stack = _functions(place)
    wchan = text(f"{place}/wchan") if stat.state in "SD" else ""
    status = text(f"{place}/status")
    switches = re.findall(r"ctxt_switches:\s*([0-9]+)", status)
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
        "killed": any(int(mask, 16) & _SIGKILL for mask in _PENDING.findall(status)),
    }
    return pid, tid, row


def sleeps(row: TaskRow) -> bool:
    """Return whether a thread slept while its row was read, as far as the row shows."""
    return row["state"] in "SD" and row["syscall"][0] is not None


def task_asleep(item: tuple[int, int]) -> tuple[int, int, TaskRow | None]:
    """Return a thread as task() does, at a moment when it sleeps, if it soon does.

    A thread that polls a thousand times a second mostly appears as running or just woken, and its
    sleep is hardly longer than task(): glance at its call until it has one. On a busy host the
    thread waits for a CPU after each poll, and this process does so between two looks: such waits
    extend the looks up to SLOWEST times.
    """
    pid, thread = item
    call = f"/proc/{pid}/task/{thread}/syscall"
    begin, before, limit = time.monotonic(), waited_for_cpu(thread), Limit(AWAKE)
    while True:
        for _ in range(GLANCES):
            if not text(call).startswith("running"):
                break
        pid, tid, row = task(item)
        end = min(limit.end() + waited_for_cpu(thread) - before, begin + SLOWEST * AWAKE)
        if row is None or sleeps(row) or time.monotonic() > end:
            return pid, tid, row
        time.sleep(0.0003)


def clock(cpu: str) -> tuple[int, float, float] | None:
    """Return (CPU, time.monotonic(), ms of that CPU's clock at that time).

    The clock is read as se.exec_start of this process, which is pinned to the CPU from now on. The
    clock excludes the time of interrupts and of the hypervisor, so each CPU has its own. Return
    None if this process cannot run there.
    """
    samples = []
    try:
        os.sched_setaffinity(0, {int(cpu)})
    except OSError:
        return None
    for _ in range(3):  # it may run later, or be descheduled between the two clocks
        time.sleep(0.0001)  # a new time slice has a fresh stamp
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
    """Return (thread, functions innermost first, whether the stack reaches the thread's start).

    For a child, which drops its rights here: it opens files as root and reads them as nobody.
    ``hangs``: tells whether a mapped file (its device, its path) may hang; such a file is not
    touched. ``mounts``: mount points of file systems that may hang.
    """
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
        copied = _copied(memory, tasks)
    tasks = [task for task in tasks if task.tid in copied]
    threads = [(task.pc, task.sp, copied[task.tid]) for task in tasks]
    native.keep_vdso()
    drop_privileges()
    rows = [
        (part.start, part.end, part.offset, _text(part.path), places.get(part.path, "/nowhere"))
        for part in parts
    ]
    stacks = native.live_stacks(rows, threads, mounts)
    return [(task.tid, names, whole) for task, (names, whole) in zip(tasks, stacks)]


def _copied(memory: Memory, tasks: list[Task]) -> dict[int, bytes]:
    """Return the stacks of threads, each from a moment when the thread sleeps in the call that was
    seen. Leave out threads that do not soon.

    A thread that polls runs between two looks, and its stack then holds other functions.
    """
    found: dict[int, bytes] = {}
    begin, limit = time.monotonic(), Limit(AWAKE)
    while left := [task for task in tasks if task.tid not in found]:
        for task in left:
            for _ in range(GLANCES):
                if _sleeps_there(task):
                    data = memory.peek(task.sp, STACK)
                    if _sleeps_there(task):
                        found[task.tid] = data
                        break
        if time.monotonic() > min(limit.end(), begin + SLOWEST * AWAKE):
            break
        if len(found) < len(tasks):
            time.sleep(0.0003)
    return found


def _sleeps_there(task: Task) -> bool:
    words = text(f"/proc/{task.pid}/task/{task.tid}/syscall").split()
    return words[-2:] == [f"{task.sp:#x}", f"{task.pc:#x}"]


def _text(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def holding(item: tuple[tuple[int, frozenset[str]], int]) -> tuple[int, list[HeldRow], int]:
    """Return (pid, descriptors that are one of these links, the next descriptor or 0).

    The argument is ((the first descriptor, the links), pid).
    """
    (first, links), pid = item
    rows = []
    numbers, following = _descriptors(f"/proc/{pid}", first)
    for number in numbers:
        opened = link(f"/proc/{pid}/fd/{number}")
        if opened in links:
            rows.append((opened, access(text(f"/proc/{pid}/fdinfo/{number}"))))
    return pid, rows, following
