"""Answer of `fusetools stuck`: the hangs on a host's FUSE mounts, and their causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.reasons import Reason
from fusetools.results.units import Seconds


@dataclass(frozen=True)
class Blocked:
    """A thread and what it waits for (``wait``, whose text follows the thread's name).

    ``age_seconds``: since it last ran (a signal or a time-out of its own restarts it), None if the
    kernel does not show it. ``start_function``: the thread's first function (MainDownload), "" if
    unknown. ``stack``: the kernel's functions, ``user_stack`` its own, both innermost first.
    ``killed``: it got SIGKILL, and ends as soon as it leaves the kernel.
    """

    pid: int
    tid: int
    comm: str
    state: str
    wait: Reason
    call: str = ""
    path: str = ""
    age_seconds: float | None = None
    uid: int | None = None
    user: str = ""
    cgroup: str = ""
    holder: int | None = None
    start_function: str = ""
    stack: tuple[str, ...] = ()
    user_stack: tuple[str, ...] = ()
    killed: bool = False

    JSON_SHOWN = ("waits",)

    @property
    def waits(self) -> str:
        return self.wait.text


class Fix(NamedTuple):
    """A command that would end the cause, and its effect."""

    command: str
    effect: str


class Told(NamedTuple):
    """Answer of a CernVM-FS client to a command (cvmfs_talk)."""

    command: str
    text: str


class Explained:
    """Base class of what has a reason, and the links of the chain that leads to it."""

    reason: Reason
    links: tuple[Reason, ...]

    JSON_SHOWN = ("text", "chain")

    @property
    def text(self) -> str:
        return self.reason.text

    @property
    def chain(self) -> tuple[str, ...]:
        return tuple(link.text for link in self.links)


@dataclass(frozen=True)
class Cause(Explained):
    """``kind``: one of KINDS; ``reason``, and its sentence ``text``; ``links``: who waits for whom,
    starting at the mount, and their sentences ``chain``; ``fixes``: never run by fusetools;
    ``threads``: the daemon's that it keeps waiting."""

    kind: str
    reason: Reason
    links: tuple[Reason, ...] = ()
    fixes: tuple[Fix, ...] = ()
    threads: tuple[int, ...] = ()


MOUNTS_WITHIN = 10.0  # seconds, after which a mount that is not made counts as stuck

# The surest first.
KINDS = (
    "autofs", "gone", "killed", "stopped", "traced", "frozen", "handover", "deadlock", "own_mount",
    "invalidation", "reload", "lock", "memory", "process", "socket", "mount", "file", "sleep",
    "on_cpu", "condition", "dead", "timeout", "unknown", "background", "unread", "unanswered",
)  # fmt: skip


@dataclass(frozen=True)
class Mounting(Explained):
    """A process that mounts something for which there is no connection yet; ``age_seconds``: since
    it began, ``path``: where, "" if unknown; ``helper``: it is a mount helper (mount.TYPE), else it
    has FUSE's device open and no connection; ``reason``, ``links``: as in Cause."""

    pid: int
    comm: str
    path: str
    age_seconds: float
    user: str
    helper: bool
    reason: Reason
    links: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class StuckMount:
    """A connection.

    ``state``: one of

    - stuck: callers have waited for longer than ``older_seconds``, or its daemon cannot answer;
    - unknown: a caller or the daemon could not be examined;
    - own: ``own`` processes of fusetools wait, and nobody else;
    - busy: requests wait, but none for long, except those of ``locked`` callers, which wait for a
      file lock that another caller holds, and ``served`` ones, which got their answers while
      fusetools looked, in turn: the daemon is slow;
    - dead: it was aborted, and its daemon lives, or its daemon has ended: each call on it fails;
    - quiet.

    ``servers``: the processes that read its requests, including ``daemon``; ``client``: the answers
    of its CernVM-FS client about itself. ``halted``: callers that are stopped, traced or frozen in
    a system call on the mount and wait for no answer, and halted holders of a file lock for which
    callers wait: the daemon is not the cause. ``covered``: another mount lies on each of its mount
    points, so that paths do not reach it.
    """

    path: str
    fstype: str
    source: str
    connection: int
    state: str
    waiting: int | None = None
    daemon: int | None = None
    comm: str = ""
    namespace_of: int | None = None
    causes: tuple[Cause, ...] = ()
    callers: tuple[Blocked, ...] = ()
    threads: tuple[Blocked, ...] = ()
    own: int = 0
    locked: int = 0
    served: int = 0
    servers: tuple[int, ...] = ()
    client: tuple[Told, ...] = ()
    halted: tuple[Cause, ...] = ()
    covered: bool = False


@dataclass(frozen=True)
class Trigger:
    """A request that made a flight recorder look. ``seconds``: its age then, or how long it took;
    ``in_flight``: it had not ended; ``error``: what it ended with."""

    path: str
    operation: str
    pid: int | None
    tid: int | None
    comm: str
    seconds: Seconds
    in_flight: bool
    error: str = ""


@dataclass(frozen=True)
class Unknown:
    """Why a hang may not have been seen. ``kind``: one of UNKNOWN; ``text``: a sentence; ``fix``: a
    command that shows more."""

    kind: str
    text: str
    fix: str = ""


UNKNOWN = ("time", "user", "pid_namespace", "fusectl", "lock")


@dataclass(frozen=True)
class Stuck:
    """``unplaced``: threads that wait in FUSE for an unknown mount; ``silent``: threads that could
    not be examined in time; ``unknown``: why it is not known whether something is stuck, empty if
    it is known; ``unread``: mount namespaces whose mounts could not be read in time; ``triggers``:
    why a flight recorder looked."""

    kernel: str
    mounts: tuple[StuckMount, ...]
    unplaced: tuple[Blocked, ...] = ()
    silent: tuple[int, ...] = ()
    older_seconds: float = 1.0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    unread: int = 0
    mounting: tuple[Mounting, ...] = ()
    triggers: tuple[Trigger, ...] = ()

    JSON_SHOWN = ("stuck",)

    @property
    def stuck(self) -> bool:
        """Return whether a mount hangs, is dead, or takes too long to be made."""
        late = any(one.helper and one.age_seconds >= MOUNTS_WITHIN for one in self.mounting)
        bad = any(mount.state in ("stuck", "dead") for mount in self.mounts)
        return bad or late or bool(self.unplaced)
