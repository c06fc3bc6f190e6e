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


class Aborter(NamedTuple):
    """The process that aborted requests.

    ``by``: "daemon" (it ended, or closed its device), "timeout" (the kernel's request timeout),
    "unmount" (a forced umount), "fusectl" (a write to the connection's file `abort`), or "process"
    (a forced umount or a write, it is not known which).
    """

    by: str
    comm: str
    pid: int | None


@dataclass(frozen=True)
class Helper:
    """A thread that did the work for which another thread waited, and woke it up.

    ``waited_ns``: duration of the wait. ``syscalls``: the helper's system calls meanwhile, as in
    ``Meanwhile``. ``peers``: addresses ("192.0.2.1:3128") of connections that it made or used
    meanwhile; None if it used sockets with unknown peers. ``files``: files on disks that it
    worked on meanwhile, with their mount and device, as far as known. ``on_cpu_ns``,
    ``runnable_ns`` and ``blocked_ns``: how it spent the wait, None if its switches were not
    recorded. ``start_function``: the function with which the thread began, "" if no recorded stack
    reaches it.
    """

    tid: int
    waited_ns: Ns
    syscalls: tuple[SyscallTime, ...]
    peers: tuple[str, ...] | None
    files: tuple[str, ...] = ()
    on_cpu_ns: Ns | None = None
    runnable_ns: Ns | None = None
    blocked_ns: Ns | None = None
    start_function: str = ""


@dataclass(frozen=True)
class Meanwhile:
    """Activity of the daemon's thread between the callback's entry and its reply.

    ``on_cpu_ns``, ``runnable_ns``, ``blocked_ns`` and ``elsewhere_ns`` (after the thread ended or
    left the request to another thread) are None if its switches were not recorded. ``unsplit_ns``:
    the part of ``blocked_ns`` that may be runnable, as no wake-up was recorded. ``syscalls``:
    longest first. ``helpers``: the thread that ended the longest wait, the thread that ended that
    thread's longest wait, and so on. ``peers`` and ``files``:
    as in ``Helper``.
    """

    on_cpu_ns: Ns | None
    runnable_ns: Ns | None
    blocked_ns: Ns | None
    elsewhere_ns: Ns | None
    unsplit_ns: Ns = 0
    syscalls: tuple[SyscallTime, ...] = ()
    helpers: tuple[Helper, ...] = ()
    peers: tuple[str, ...] | None = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One FUSE request. None or "": not recorded. Points in time count from the first event.

    ``start_ns``: time of queueing. ``duration_ns``: time that its caller waited for it, the sum of
    ``stages``; for an asynchronous request, from its begin to its end. ``until_ns``: end of a
    request without a reply: its caller's return or the recording's end. ``path`` begins at the
    mount point if ``whole``. ``inode``: the file's, also if a lookup found it. ``name``: the
    callback's argument, a file's or an attribute's name. ``size_bytes`` and ``offset_bytes``: as
    requested. ``answered_bytes``: size of the reply without its header. ``marks_ns``: times by mark
    (see fusetools.results.table). ``stages``: as in ``Stages``; ``parts_ns``: the parts of each
    stage in the same order, as in ``Stage``, empty if unknown. ``handed``: another, unknown thread
    than the reader worked on it. ``reader`` and ``replier``: threads that read and answered it.
    ``refused``: error with which the kernel refused its answer, "" if it did not; ``dropped``: its
    reader went on to other requests and never answered it; ``left_ns``: time of either.
    ``signals``: number of signals that its caller got while it waited; ``signal``: the first one's
    name; ``interrupted``: the daemon read an INTERRUPT for it. ``resent``: the kernel sent it a
    second time; ``first_reader``: process that had read it before, and did not answer it;
    ``first_read_ns``: when. ``aborter``: who aborted it, None if nobody.
    ``host``: of its recording, in answers about several. ``start_function``: that of the daemon's
    thread, as in ``Helper``; only in ``slow`` and ``show``.
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
    refused: str = ""
    dropped: bool = False
    left_ns: Ns | None = None
    resent: bool = False
    first_reader: int | None = None
    first_read_ns: Ns | None = None
    signals: int = 0
    signal: str = ""
    interrupted: bool = False
    aborter: Aborter | None = None
    meanwhile: Meanwhile | None = None
    host: str = ""
    start_function: str = ""
