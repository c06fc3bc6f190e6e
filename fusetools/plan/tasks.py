"""Events of tasks, with their filters: switches, wake-ups, and system calls of the workload and the
daemons.

How a recording is limited to them: docs/design/recording-scope.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusetools.host.facts import Mount
from fusetools.host.words import quoted
from fusetools.names import CONNECT, LOCKS, READS, RINGS, SIGNAL
from fusetools.plan.events import Event
from fusetools.plan.filters import (
    EVERY,
    Filter,
    OfDaemons,
    OfWorkload,
    all_of,
    any_of,
    condition,
    grouped,
    negated,
    place,
)
from fusetools.plan.options import Options

# Threads of the workload have greater numbers than its first one, until the numbers wrap around;
# with fewer than PIDS numbers they wrap too soon.
PIDS = 1 << 14
# System calls of x86-64 in which a thread may sleep until another thread or process acts: poll,
# select, pause, nanosleep, connect to recvmsg, wait4, semop, msgsnd, msgrcv, flock to fdatasync,
# rt_sigtimedwait, rt_sigsuspend, sync, futex, io_getevents, restart_syscall (of a sleep in which
# a ring of io_uring brought something), semtimedop, clock_nanosleep,
# epoll_wait, mq_timedsend, mq_timedreceive, waitid, pselect6, ppoll, sync_file_range, epoll_pwait,
# accept4, recvmmsg, syncfs, sendmmsg, io_uring_enter, epoll_pwait2, futex_waitv, futex_wait. Not
# read, because a daemon also waits for its next request with it: see streams. Not fcntl, of which
# only two commands wait: F_SETLKW and F_OFD_SETLKW.
_WAITS: tuple[tuple[int, int], ...] = (
    *((7, 7), (23, 23), (34, 35), (42, 47), (61, 61), (65, 65), (69, 70), (73, 75), (128, 128)),
    *((130, 130), (162, 162), (202, 202), (208, 208), (219, 220), (230, 230), (232, 232)),
    *((242, 243), (247, 247), (270, 271), (277, 277), (281, 281), (288, 288), (299, 299)),
    *((306, 307), (426, 426), (441, 441), (449, 449), (455, 455)),
)

# Filters for rings that carry requests: IORING_OP_URING_CMD, whose result is 0
# (fs/fuse/dev_uring.c).
_OF_RINGS = {"committed": "opcode == 46", "fetched": "res == 0"}


def comms_of(mounts: Sequence[Mount], comms: Mapping[int, Sequence[str]]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for mount in mounts:
        if mount.daemon_pid is not None:
            names.update(dict.fromkeys(comms.get(mount.daemon_pid) or [mount.comm or "?"]))
            for pid in mount.servers:
                names.update(dict.fromkeys(comms.get(pid, ())))
    return tuple(names)


def _named(fields: Sequence[str], comms: Sequence[str]) -> Filter:
    """Return a filter: one of ``fields`` is one of ``comms``."""
    return any_of(*(condition(f"{field} {quoted(comm)}") for field in fields for comm in comms))


def _equal(field: str, numbers: Sequence[int]) -> Filter:
    """Return a filter: ``field`` is one of ``numbers``."""
    return any_of(*(condition(f"{field} == {number}") for number in numbers))


def _within(ranges: Sequence[tuple[int, int]]) -> Filter:
    """Return a filter: ``id`` lies in one of ``ranges``, which ascend.

    Many ranges are halved, as the kernel makes one condition after another, at each system call of
    the host.
    """
    if len(ranges) < 8:
        return any_of(
            *(
                condition(f"id == {first}")
                if first == last
                else grouped(all_of(condition(f"id >= {first}"), condition(f"id <= {last}")))
                for first, last in ranges
            )
        )
    lower, upper = ranges[: len(ranges) // 2], ranges[len(ranges) // 2 :]
    middle = upper[0][0]
    below = all_of(condition(f"id < {middle}"), _within(lower))
    above = all_of(condition(f"id >= {middle}"), _within(upper))
    return any_of(grouped(below), grouped(above))


# Signals that may end a process, without those that programs send to themselves all the time: HUP
# to KILL, SEGV, PIPE, TERM, XCPU, XFSZ, SYS.
_ENDING = "sig < 10 || sig == 11 || sig == 13 || sig == 15 || sig == 24 || sig == 25 || sig == 31"
_WAITS_FOR_LOCK = _equal("cmd", (7, 38))
# The calls that daemons make most are excluded first: read, write, pread64, readv, writev.
WAITS = all_of(any_of(condition("id == 7"), condition("id > 20")), _within(_WAITS))


def _copied(name: str, copied: Sequence[str], daemons: Sequence[str]) -> Filter:
    """Return a filter for the events whose stacks are copied.

    Not every wait, as most are for the next request: perf cannot write 25,000 stacks of 8 KB a
    second. A wait for another thread has the stack at its system call's entry
    (native/core/src/write/stacks.rs); an uninterruptible sleep, for a disk or a kernel lock, has
    the stack of its switch. No stacks where a thread is preempted: with 8 callers on 2 CPUs these
    alone lost 10,000 to 17,000 of 220,000 events.
    """
    if name == "sched:sched_switch":
        return all_of(_named(("COMM",), copied), condition("prev_state & 2"))
    if name == "sched:sched_waking":
        # The kernel also reports a waking to the events of the woken task, with the stack of
        # whoever wakes it (__perf_task in include/trace/events/sched.h): so by number here.
        mine = place(OfDaemons())
        return all_of(mine, _named(("COMM",), copied), _named(("comm",), daemons))
    return _waits(copied) if name == "raw_syscalls:sys_enter" else EVERY


def entries(daemons: Sequence[str]) -> list[tuple[str, Event]]:
    """Return the daemons' calls that may wait, with the stack by frame pointers: so a long wait has
    a stack even while only some switches have theirs taken (record/slices.py)."""
    name = "raw_syscalls:sys_enter"
    return [(name, Event(name, _waits(daemons), "fp")), *_locks(daemons, "fp")] if daemons else []


def _waits(comms: Sequence[str]) -> Filter:
    """Return a filter for the system calls of ``comms`` that may wait."""
    return all_of(WAITS, _named(("COMM",), comms))


def _locks(comms: Sequence[str], stack: str) -> list[tuple[str, Event]]:
    """Their waits for locks of files: most of fcntl's calls, one for each directory that a daemon
    opens, wait for nothing."""
    return [(LOCKS, Event(LOCKS, all_of(_WAITS_FOR_LOCK, _named(("COMM",), comms)), stack))]


# A filter is at most one page long.
MOST_STREAMS = 100


def streams(mounts: Sequence[Mount], comms: Mapping[int, Sequence[str]]) -> list[Event]:
    """Return the daemons' reads from sockets and pipes that were open when the recording began.

    Only those, so that reading the next request costs nothing, even if it is spliced into a pipe of
    the thread's own, and whatever threads start meanwhile. Waits on other descriptors keep the
    stack by frame pointers.
    """
    left = MOST_STREAMS
    numbers: dict[Filter, set[int]] = {}
    for mount in mounts:
        of = numbers.setdefault(_named(("COMM",), comms_of([mount], comms)), set())
        before = len(of)
        of.update(mount.streams[:left])
        left -= len(of) - before
    which = any_of(
        *(grouped(all_of(who, _equal("fd", sorted(of)))) for who, of in numbers.items() if of)
    )
    return [Event(name, which, "dwarf") for name in READS] if which else []


def task_events(
    arch: str,
    daemons: Sequence[str],
    options: Options,
    copied: Sequence[str],
    cgroup: bool,
    by_pid: bool,
    stacks: bool = True,
) -> list[tuple[str, Event]]:
    """Switches, wake-ups and system calls: of the workload, then of the daemons, none twice.

    A switch to one of them from another process is recorded without a stack, which would be the
    other's.

    COMM is the current task's name; an event's stack is that task's, also for a switch away from
    it; comm is a field: the woken task's name. A uretprobe shows as a system call (uretprobe 335,
    uprobe 336 on x86-64; its exit as number -1) that no program made. ``copied``: the daemons whose
    stacks are copied.

    The stacks of the workload's own waits are copied only on demand: most end in the system call,
    whose name is known anyway, and they are as many as the requests.
    """
    enter = "id < 335 || id > 336" if arch == "x86_64" else ""
    leave = "id >= 0" if arch == "x86_64" else ""
    usual = "dwarf" if options.call_graph == "dwarf" else "fp"
    usual = usual if stacks and options.detail == "stacks" else ""
    wakers = "fp" if usual and options.wakers else ""
    pids = {"prev_comm": "prev_pid", "next_comm": "next_pid", "comm": "pid", "COMM": "common_pid"}
    scopes = (
        ("sched:sched_switch", ("prev_comm", "next_comm"), "", usual),
        ("sched:sched_waking", ("comm", "COMM"), "", wakers),
        ("raw_syscalls:sys_enter", ("COMM",), enter, ""),
        ("raw_syscalls:sys_exit", ("COMM",), leave, ""),
    )
    events = []
    workload = options.callers
    if workload and cgroup:
        for name, fields, also, stack in scopes:
            others = negated(_named(fields, daemons)) if daemons else EVERY
            events.append(
                (name, Event(name, all_of(others, condition(also)), stack, workload=True))
            )
    everybody = workload and not (cgroup or by_pid)

    def ours(fields: Sequence[str]) -> Filter:
        # Numbers first: a name takes the kernel several times as long to compare.
        of = [place(OfWorkload(pids[field])) for field in fields if by_pid]
        return any_of(*of, *[_named(fields, daemons)] * bool(daemons))

    for name, fields, also, stack in scopes if daemons or everybody or by_pid else ():
        own = EVERY if everybody else ours(fields)
        others = EVERY
        copy = _copied(name, copied, daemons) if copied and (usual == "fp") else EVERY
        if copy and (stack == "fp" or name == "raw_syscalls:sys_enter"):
            events.append((name, Event(name, copy, "dwarf")))
            others = negated(copy)
        # The workload's cgroup events do not include its switches to a daemon.
        if stack and (by_pid or not workload) and "next_comm" in fields:
            from_us = ours(("prev_comm",))
            events.append((name, Event(name, all_of(from_us, others), stack)))
            own, stack, others = ours(("next_comm",)), "", negated(from_us)
        # A system call is its own thread's. Threads of io_uring, which ftrace does not follow, make
        # none, but wait and are woken.
        whose, own = (own, EVERY) if name.startswith("raw_syscalls:") else (EVERY, own)
        which = all_of(own, others, condition(also))
        events.append((name, Event(name, which, stack, whose=whose)))
    # Signals to daemons: pid and comm are the receiver's.
    ends = all_of(condition(_ENDING), _named(("comm",), daemons)) if daemons else None
    if workload and not cgroup:
        # The sender is the current task, or whatever a timer interrupts: by number where possible.
        only = place(OfWorkload("pid")) if by_pid else EVERY
        ends = any_of(only, grouped(ends)) if only and ends else only
    elif workload:
        events.append((SIGNAL, Event(SIGNAL, workload=True)))
    if ends is not None:
        events.append((SIGNAL, Event(SIGNAL, ends)))
    if copied and usual == "fp":
        events += _locks(copied, "dwarf")
    if daemons:
        # The servers that they connect to: TCP_SYN_SENT, in the connecting thread.
        events.append((CONNECT, Event(CONNECT, _connects(daemons))))
    return events


def _connects(comms: Sequence[str]) -> Filter:
    """Return a filter for the first step of a connection by one of ``comms``."""
    return all_of(condition("newstate == 2"), grouped(_named(("COMM",), comms)))


def of_rings(daemons: Sequence[str], latency: bool) -> list[Event]:
    """Return events of what the daemons' rings of io_uring bring and are given.

    For latencies only the latter, which shows that a request is answered by a ring.
    """
    roles = ["committed"] if latency else list(RINGS)
    own = _named(("COMM",), daemons)
    filters = {role: all_of(own, condition(_OF_RINGS.get(role, ""))) for role in roles}
    return [Event(RINGS[role], only) for role, only in filters.items()] if daemons else []
