"""Settings that a process inherits and that change how it runs: limits, priorities, masks.

A caller of sudo chooses these. While fusetools works as root, they have known values. Only the
workload gets the caller's values back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

INFINITE = resource.RLIM_INFINITY
# Limits whose value is not "none". A core dump would contain the recorded data.
KNOWN = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": 1 << 16, "RLIMIT_STACK": 8 << 20}
# Limits that make a recording fail at any time, where they cannot be raised (a container without
# CAP_SYS_RESOURCE): the letter for ulimit, and the minimum value.
LEAST = {
    "f": (resource.RLIMIT_FSIZE, 1 << 30),
    "t": (resource.RLIMIT_CPU, 600),
    "v": (resource.RLIMIT_AS, 4 << 30),
    "d": (resource.RLIMIT_DATA, 1 << 30),
    "s": (resource.RLIMIT_STACK, 256 << 10),
    "n": (resource.RLIMIT_NOFILE, 256),
}
# Limits that only grant something: root needs none of them.
GRANTS = ("RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_MSGQUEUE", "RLIMIT_OFILE")
LIMITS = {
    name: int(getattr(resource, name))
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name not in GRANTS
}
# nohup and a shell's background jobs ignore these signals, as the caller wishes. Python itself
# ignores the other two.
KEPT = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)
UMASK = 0o022  # minimum; never set for root, which could not enter its own directories
OOM = Path("/proc/self/oom_score_adj")
SLACK, SET_SLACK, GET_SLACK = 50_000, 29, 30  # ns; prctl(2), PR_SET_TIMERSLACK
IOPRIO = {"x86_64": (251, 252), "aarch64": (30, 31)}  # commands of ioprio_set(2) and ioprio_get(2)


@dataclass(frozen=True)
class Settings:
    """Settings of a process.

    ``limits``: by number; ``ignored``: signals; ``descriptors``: those above 2 that a program would
    inherit; None: unknown here.
    """

    limits: dict[int, tuple[int, int]]
    mask: set[signal.Signals]
    ignored: tuple[signal.Signals, ...]
    umask: int
    nice: int
    scheduler: tuple[int, int]
    affinity: set[int]
    ioprio: int | None
    slack: int
    oom: str
    descriptors: tuple[int, ...]


_callers: Settings | None = None
_mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())


def settle() -> None:
    """Give this process known settings, and remember the caller's. Call once, at startup."""
    global _callers
    _callers = _read()
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)  # exec keeps them
    for name, number in LIMITS.items():
        known, hard = KNOWN.get(name, INFINITE), _callers.limits[number][1]
        if hard != INFINITE and (known == INFINITE or known > hard):
            hard = known
        _limit(number, (known, hard))  # a lowered hard limit cannot always be raised again
    for ignored in _callers.ignored:
        if ignored not in KEPT:
            signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for descriptor in _callers.descriptors:
        os.set_inheritable(descriptor, False)
    everywhere = set(range(os.sysconf("SC_NPROCESSORS_CONF")))
    _apply(0, (os.SCHED_OTHER, 0), everywhere, 0, SLACK, "0")


def too_low() -> str:
    """Return a limit with which nothing can be recorded, by its letter for ulimit; "" if there is
    none."""
    soft = {letter: resource.getrlimit(number)[0] for letter, (number, _) in LEAST.items()}
    low = (n for n, (_, least) in LEAST.items() if soft[n] != INFINITE and soft[n] < least)
    return next(low, "")


def descriptors() -> tuple[int, ...]:
    """Return the caller's descriptors above 2, which the workload inherits."""
    return _callers.descriptors if _callers else ()


def give_back() -> None:
    """Give the caller's settings to this process, a child that is still root and becomes the
    workload.

    Call right before exec, with limit_processes().
    """
    if _callers is None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask)
        return
    for ignored in _callers.ignored:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, _callers.mask)
    for descriptor in _callers.descriptors:
        with contextlib.suppress(OSError):
            os.set_inheritable(descriptor, True)
    os.umask(_callers.umask)
    own = _callers
    _apply(own.nice, own.scheduler, own.affinity, own.ioprio, own.slack, own.oom)
    for number, limits in own.limits.items():
        if number != resource.RLIMIT_NPROC:
            _limit(number, limits)


def limit_processes() -> None:
    """Set the caller's limit of processes, after setuid(): exec fails if the limit is exceeded."""
    if _callers is not None:
        _limit(resource.RLIMIT_NPROC, _callers.limits[resource.RLIMIT_NPROC])


def _read() -> Settings:
    umask = os.umask(0)
    os.umask(umask & 0o077 | UMASK)
    policy = os.sched_getscheduler(0)
    ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
    return Settings(
        limits={number: resource.getrlimit(number) for number in LIMITS.values()},
        mask={signal.Signals(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())},
        ignored=tuple(signal.Signals(n) for n in ignored if n not in PYTHONS),
        umask=umask,
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        scheduler=(policy, os.sched_getparam(0).sched_priority),
        affinity=os.sched_getaffinity(0),
        ioprio=_ioprio(),
        slack=ctypes.CDLL(None).prctl(GET_SLACK, 0, 0, 0, 0),
        oom=_oom(),
        descriptors=tuple(_inherited()),
    )


def _apply(
    nice: int,
    scheduler: tuple[int, int],
    affinity: set[int],
    ioprio: int | None,
    slack: int,
    oom: str,
) -> None:
    """If the kernel refuses a setting (in a container), it keeps its value."""
    policy, priority = scheduler
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, affinity)
    if ioprio is not None:
        _ioprio(ioprio)
    ctypes.CDLL(None).prctl(SET_SLACK, max(slack, 1), 0, 0, 0)
    with contextlib.suppress(OSError):
        OOM.write_text(oom)


def _limit(number: int, limits: tuple[int, int]) -> None:
    """Set a limit as far as the kernel allows."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(number, limits)
        return
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(number)[1]
        soft = limits[0] if hard == INFINITE or 0 <= limits[0] <= hard else hard
        resource.setrlimit(number, (soft, hard))


def _ioprio(new: int | None = None) -> int | None:
    """Return the I/O priority of this process; None: unknown here. Set it to ``new`` if given."""
    numbers = IOPRIO.get(os.uname().machine)
    if numbers is None:
        return None
    libc = ctypes.CDLL(None)
    if new is not None:
        libc.syscall(numbers[0], 1, 0, new)  # IOPRIO_WHO_PROCESS
    value = int(libc.syscall(numbers[1], 1, 0))
    return value if value >= 0 else None


def _inherited() -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if number > 2 and os.get_inheritable(number):
                    found.append(number)
    return found


def _oom() -> str:
    with contextlib.suppress(OSError):
        return OOM.read_text().strip()
    return "0"
