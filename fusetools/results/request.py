"""A single request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.results.units import Bytes, Ns


class SyscallTime(NamedTuple):
    syscall: str
    calls: int
    time: Ns


class StageTime(NamedTuple):
    stage: str
    time: Ns


@dataclass(frozen=True)
class Helper:
    """Another thread whose work a thread waited for, and that woke it up.

    ``waited``: ns that the wait took; ``syscalls``: what this thread called meanwhile, as of
    ``Meanwhile``; ``peers``: whom it connected to meanwhile ("192.0.2.1:3128"), None where it used
    sockets and the recording does not tell of whom.
    """

    tid: int
    waited: Ns
    syscalls: tuple[SyscallTime, ...]
    peers: tuple[str, ...] | None


@dataclass(frozen=True)
class Meanwhile:
    """What the daemon's thread did between the callback's entry and its reply.

    ``helpers``: the thread that ended its longest wait, the one that ended that one's, and so on.
    ns on a CPU, ready to run, asleep, and after it had left the request to another thread; all None
    where its switches were not recorded. ``unsplit``: of ``blocked``, what may be ``runnable``,
    since no wake-up was recorded. ``syscalls``: (name, calls, ns), longest first.
    """

    on_cpu: Ns | None
    runnable: Ns | None
    blocked: Ns | None
    elsewhere: Ns | None
    unsplit: Ns = 0
    syscalls: tuple[SyscallTime, ...] = ()
    helpers: tuple[Helper, ...] = ()


@dataclass(frozen=True)
class Request:
    """One FUSE request; None, or "", where the recording does not tell.

    ``start``: when it was queued, ns since the recording's first event; ``duration``: what its
    caller waited for it, the sum of ``stages``; of an asynchronous one from its begin to its end.
    Of one without an answer: until it was over (``until``, ns since the recording's first event),
    by the recording's end or its caller's return. ``path`` begins at the mount point if
    ``whole``. ``inode`` is the file's, also where a lookup led to it. ``name``: what the callback
    was given, of a file or an attribute; ``size``: what it was asked for, and ``offset`` from
    where; ``answered``: bytes of the answer without its header. ``marks``: name
    to ns since the recording's first event. ``stages``: (name, ns) as in ``Stages``; ``parts``: ns
    of each, in the same order, as in ``Stage``, empty where not known. ``handed``: another thread
    of the daemon worked on it than the one that read it, and which is not known; ``reader`` and
    ``replier`` are the threads that read and answered it.
    """

    operation: str
    unique: int | None
    mount: str
    fate: str
    start: Ns
    duration: Ns
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
    size: Bytes | None
    offset: Bytes | None
    answered: Bytes | None
    negative: bool
    marks: dict[str, Ns]
    stages: tuple[StageTime, ...]
    parts: tuple[dict[str, Ns], ...] = ()
    until: Ns | None = None
    handed: bool = False
    reader: int | None = None
    replier: int | None = None
    meanwhile: Meanwhile | None = None
