"""The options of a recording, checked once at the edge."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TypedDict, Union

from fusetools.names import (
    BACKENDS,
    CALL_GRAPHS,
    DETAILS,
    LEAST_STACK_BYTES,
    MOST_STACK_BYTES,
    STACK_BYTES,
)
from fusetools.plan.conditions import Condition


@dataclass(frozen=True)
class Daemons:
    """Record the daemons, regardless of who uses their mounts."""


@dataclass(frozen=True)
class Workload:
    """Run ``command`` and record it. ``log``: the open file that receives its output; None:
    fusetools' own output."""

    command: tuple[str, ...]
    log: int | None = None

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("a workload is a command")


@dataclass(frozen=True)
class Caller:
    """Record process ``pid``, which already runs, and its descendants."""

    pid: int

    def __post_init__(self) -> None:
        if self.pid <= 0:
            raise ValueError("a caller is a process")


@dataclass(frozen=True)
class Flight:
    """Record continuously, and write the last ``seconds`` when one of ``conditions`` becomes true
    or on demand.

    ``keep``: number of recordings that stay, None: the default; ``buffer``: bytes of each CPU's
    buffer, a power of two; None: chosen by ``seconds``.
    """

    seconds: float = 30.0
    conditions: tuple[Condition, ...] = ()
    keep: int | None = None
    buffer: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf or (self.keep is not None and self.keep < 1):
            raise ValueError("it keeps nothing")
        if self.buffer is not None and (self.buffer < 1 or self.buffer & (self.buffer - 1)):
            raise ValueError("a buffer is a power of two")


@dataclass(frozen=True)
class Stream:
    """Read requests as they happen, with only the names of their files."""


@dataclass(frozen=True)
class Count:
    """Count in the kernel while ``command`` runs; record nothing."""

    command: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("a workload is a command")


Kind = Union[Daemons, Workload, Caller, Flight, Stream, Count]


@dataclass(frozen=True)
class Options:
    """The options of a recording. ValueError: one has an invalid value, or the kind does not take
    it; users' values are checked earlier.

    ``kind``: what is recorded, and until when. ``mounts``: paths on FUSE mounts, none: every FUSE
    mount. ``pid``: the daemon, instead of the detected one. ``fs``: a probe set's name or path,
    with "+GROUP" for each of its optional groups; None: chosen by the daemon's libraries.
    ``call_graph``: how user stacks are recorded: "fp", "dwarf", "kernel" for kernel stacks only, or
    "auto": "fp", but "dwarf" for waits outside requests of daemons whose code keeps no frame
    pointers; ``stack_bytes``: how much of a stack is copied; ``wakers``: also record stacks of
    wakers.
    ``backend``: one of BACKENDS; ``functions``: shell patterns of the kernel's functions, none: the
    usual ones.
    ``force``: record even onto a traced mount; ``wait``: wait until another recording has ended.
    ``detail``: one of DETAILS: only requests and callbacks; with switches, wake-ups, system calls
    and kernel functions; with stacks and samples for flame graphs.
    ``duration``: seconds; None: until the workload ends, or Ctrl-C; ``max_size``: bytes after which
    the recording ends.
    """

    kind: Kind = Daemons()
    mounts: tuple[str, ...] = ()
    pid: int | None = None
    fs: str | None = None
    output: str = "perf.data"
    call_graph: str = "auto"
    stack_bytes: int = STACK_BYTES
    wakers: bool = False
    as_root: bool = False
    backend: str = "auto"
    functions: tuple[str, ...] = ()
    force: bool = False
    detail: str = "stacks"
    wait: bool = False
    duration: float | None = None
    max_size: int = 4 << 30

    def __post_init__(self) -> None:
        for name, values in _VALUES.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name}: {getattr(self, name)!r}")
        if self.stack_bytes % 8 or not LEAST_STACK_BYTES <= self.stack_bytes <= MOST_STACK_BYTES:
            raise ValueError(f"stack_bytes: {self.stack_bytes!r}")
        if self.wakers and self.detail != "stacks":
            raise ValueError("stacks of wakers need the detail stacks")
        if self.duration is not None and not 0 < self.duration < math.inf:
            raise ValueError(f"duration: {self.duration!r}")
        if self.max_size <= 0:
            raise ValueError(f"max_size: {self.max_size!r}")
        for name in _NOT_TAKEN.get(type(self.kind), ()):
            if getattr(self, name) != getattr(Options, name):
                raise ValueError(f"{type(self.kind).__name__} takes no {name}")
        if isinstance(self.kind, Stream) and self.detail != "latency":
            raise ValueError("a stream has the detail latency")
        if self.flight and self.backend == "graph":
            raise ValueError("function_graph has no buffers that perf could write")
        if self.flight and self.functions and self.backend == "auto":
            object.__setattr__(self, "backend", "kprobe")

    @property
    def command(self) -> tuple[str, ...]:
        """The workload's command, () for none."""
        return self.kind.command if isinstance(self.kind, (Workload, Count)) else ()

    @property
    def log(self) -> int | None:
        """The open file that receives the workload's output; None: fusetools' own output."""
        return self.kind.log if isinstance(self.kind, Workload) else None

    @property
    def caller(self) -> int | None:
        """The process that already runs and is recorded."""
        return self.kind.pid if isinstance(self.kind, Caller) else None

    @property
    def flight(self) -> Flight | None:
        """The options of a flight recorder; None: it is no flight recorder."""
        return self.kind if isinstance(self.kind, Flight) else None

    @property
    def callers(self) -> bool:
        """True if it concerns certain callers, whose switches and system calls are recorded."""
        return isinstance(self.kind, (Workload, Caller, Count))

    @property
    def counts(self) -> bool:
        """True if calls are counted, and nothing is recorded."""
        return isinstance(self.kind, Count)

    @property
    def usual_functions(self) -> bool:
        """True if the usual kernel functions are recorded. A flight recorder runs for weeks."""
        return self.detail != "latency" and not self.flight

    @property
    def names(self) -> bool:
        """True if file names are recorded: the detail latency needs them for a stream alone."""
        return self.detail != "latency" or isinstance(self.kind, Stream)

    @property
    def to_file(self) -> bool:
        """True if the recording becomes a file. Else its events are used immediately, or perf's
        buffers are written repeatedly."""
        return not isinstance(self.kind, (Flight, Stream))


_VALUES = {"backend": BACKENDS, "call_graph": CALL_GRAPHS, "detail": DETAILS}
_OF_RECORDINGS = tuple(
    one.name for one in fields(Options) if one.name not in ("kind", "mounts", "detail")
)
# Options that a kind does not take.
_NOT_TAKEN: dict[type[Kind], tuple[str, ...]] = {
    Flight: ("duration", "max_size"),
    Stream: _OF_RECORDINGS,
    Count: (*_OF_RECORDINGS, "detail"),
}


def stream(mounts: tuple[str, ...] = ()) -> Options:
    """Return the options of `top` and `trace`."""
    return Options(Stream(), mounts, detail="latency")


class UserOptions(TypedDict, total=False):
    """Fields of Options that all commands take from the user."""

    mounts: tuple[str, ...]
    pid: int | None
    fs: str | None
    call_graph: str
    stack_bytes: int
    wakers: bool
    as_root: bool
    backend: str
    functions: tuple[str, ...]
    detail: str


class LimitedOptions(UserOptions, total=False):
    """Those, and a limit of the recording's size."""

    max_size: int


class RecordOptions(UserOptions):
    """Those, and what only `record` takes from the user."""

    output: str
    force: bool
    wait: bool
