"""A single request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.results.units import Bytes, Ns


class SyscallTime(NamedTuple):
    syscall: str
    calls: int
    time_ns: Ns


class StageTime(NamedTuple):
    stage: str
    time_ns: Ns


@dataclass(frozen=True)
class Helper:
    """Another thread that did the work that a thread waited for, and woke it up.

    ``waited_ns``: ns that the wait took; ``syscalls``: this thread's system calls meanwhile, as in
    ``Meanwhile``; ``peers``: addresses that it connected to meanwhile, or used a connection to
    that there was from the recording's begin to its end ("192.0.2.1:3128"); None if it used
    sockets whose peers the recording does not show.
    """

    tid: int
    waited_ns: Ns
    syscalls: tuple[SyscallTime, ...]
    peers: tuple[str, ...] | None


@dataclass(frozen=True)
class Meanwhile:
    """What the daemon's thread did between the callback's entry and its reply.

    ``helpers``: the thread that ended its longest wait, the thread that ended that thread's longest
    wait, and so on. ns on a CPU, ready to run, asleep, and after it had left the request to
    another thread, or ended; all None if its switches were not recorded. ``unsplit_ns``: the
    part of ``blocked_ns`` that may be ``runnable_ns``, as no wake-up was recorded.
    ``syscalls``: (name, calls, ns), longest first; ``peers`` as in ``Helper``.
    """

    on_cpu_ns: Ns | None
    runnable_ns: Ns | None
    blocked_ns: Ns | None
    elsewhere_ns: Ns | None
    unsplit_ns: Ns = 0
    syscalls: tuple[SyscallTime, ...] = ()
    helpers: tuple[Helper, ...] = ()
    peers: tuple[str, ...] | None = ()


@dataclass(frozen=True)
class Request:
    """One FUSE request; None or "" means that the recording does not show it.

    ``start_ns``: when it was queued, ns since the recording's first event; ``duration_ns``: the
    time that its caller waited for it, the sum of ``stages``; for an asynchronous request from its
    begin to its end; without an answer, until it was over (``until_ns``, ns since the recording's
    first event): at the recording's end or its caller's return. ``path`` begins at the mount point
    if ``whole``. ``inode`` is the file's, also if a lookup led to it. ``name``: the callback's
    argument, of a file or an attribute; ``size_bytes`` and ``offset_bytes``: the requested bytes;
    ``answered_bytes``: bytes of the answer without its header. ``marks_ns``: name to ns since the
    recording's first event. ``stages``: (name, ns) as in ``Stages``; ``parts_ns``: ns of each, in
    the same order, as in ``Stage``, empty if unknown. ``handed``: another, unknown thread of the
    daemon worked on it than the one that read it; ``reader`` and ``replier`` are the threads that
    read and answered it.
    """

    operation: str
    unique: int | None
    mount: str
    fate: str
    start_ns: Ns
    duration_ns: Ns
    error: str
    waits: bool
    comm: str
    pid: int | None
    tid: int | None
    syscall: str
    daemon_comm: str
    daemon_pid: int | None
    daemon_tid: int | None
    path: str | None
    whole: bool
    name: str | None
    inode: int | None
    size_bytes: Bytes | None
    offset_bytes: Bytes | None
    answered_bytes: Bytes | None
    negative: bool
    marks_ns: dict[str, Ns]
    stages: tuple[StageTime, ...]
    parts_ns: tuple[dict[str, Ns], ...] = ()
    until_ns: Ns | None = None
    handed: bool = False
    reader: int | None = None
    replier: int | None = None
    meanwhile: Meanwhile | None = None
