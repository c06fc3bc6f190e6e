"""What a user requests from `fusetools record`, checked once at the edge."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TypedDict

from fusetools.plan.conditions import Condition
from fusetools.session import LEAST_STACK_BYTES, MOST_STACK_BYTES, STACK_BYTES

BACKENDS = ("auto", "graph", "kprobe", "tracepoint")
CALL_GRAPHS = ("auto", "fp", "dwarf", "kernel")
# Cheapest first; each records what the previous ones do, and more.
DETAILS = ("latency", "stages", "stacks")


@dataclass(frozen=True)
class Request:
    """Common to all kinds: Workload, Caller and Attach, which end by themselves, Flight, Stream and
    Count. ValueError: an option has an invalid value; users' values are checked earlier.

    ``mounts``: paths on FUSE mounts, none: every FUSE mount. ``pid``: the daemon, instead of the
    detected one. ``fs``: a probe set's name or path, with "+GROUP" for each of its optional groups;
    None: chosen by the daemon's libraries. ``call_graph``: how user stacks are recorded: "fp",
    "dwarf", "kernel" for kernel stacks only, or "auto": "fp", but "dwarf" for waits outside
    requests of daemons whose code keeps no frame pointers; ``stack_bytes``: how much of a stack is
    copied; ``wakers``: also record wakers' stacks.
    ``backend``: one of BACKENDS; ``functions``: shell patterns of the kernel's functions, none: the
    usual ones.
    ``force``: record even onto a traced mount; ``wait``: wait until another recording has ended.
    ``detail``: one of DETAILS: only requests and callbacks; with switches, wake-ups, system calls
    and kernel functions; with stacks and samples for flame graphs.
    """

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

    def __post_init__(self) -> None:
        if type(self) in (Request, Limited):
            raise TypeError("use one of the subclasses below")
        for name, values in _VALUES.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name}: {getattr(self, name)!r}")
        if self.stack_bytes % 8 or not LEAST_STACK_BYTES <= self.stack_bytes <= MOST_STACK_BYTES:
            raise ValueError(f"stack_bytes: {self.stack_bytes!r}")
        if self.wakers and self.detail != "stacks":
            raise ValueError("stacks of wakers need the detail stacks")

    @property
    def command(self) -> tuple[str, ...]:
        """The workload's command, () for none."""
        return ()

    @property
    def duration(self) -> float | None:
        """Seconds; None: until the workload ends, or Ctrl-C."""
        return None

    @property
    def max_size(self) -> int:
        """Bytes after which the recording ends."""
        return sys.maxsize

    @property
    def callers(self) -> bool:
        """Whether it concerns certain callers, whose switches and system calls are recorded."""
        return bool(self.command)

    @property
    def functions_too(self) -> bool:
        """Whether the usual kernel functions are recorded."""
        return self.detail != "latency"

    @property
    def names(self) -> bool:
        """Whether file names are recorded: uses of the detail latency need none."""
        return self.detail != "latency"

    @property
    def to_file(self) -> bool:
        """Whether the recording becomes a file; else its events are used immediately."""
        return True

    @property
    def log(self) -> int | None:
        """The open file that receives the workload's output; None: fusetools' own output."""
        return None


_VALUES = {"backend": BACKENDS, "call_graph": CALL_GRAPHS, "detail": DETAILS}


class Options(TypedDict, total=False):
    """Fields of a Request for which all commands have user options."""

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


class LimitedOptions(Options, total=False):
    """Also with those of Limited."""

    max_size: int


@dataclass(frozen=True)
class Limited(Request):
    """Ends by itself."""

    duration: float | None = None
    max_size: int = 4 << 30

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.duration is not None and not 0 < self.duration < math.inf:
            raise ValueError(f"duration: {self.duration!r}")
        if self.max_size <= 0:
            raise ValueError(f"max_size: {self.max_size!r}")


@dataclass(frozen=True)
class Attach(Limited):
    """Records the daemons, regardless of who uses their mounts."""


@dataclass(frozen=True)
class Flight(Request):
    """Records continuously, and writes the last ``seconds`` when one of ``conditions`` becomes true
    or on demand; the last ``keep`` recordings stay, None: as many as is usual. ``buffer``: bytes of
    each CPU's buffer, a power of two; None: chosen by ``seconds``."""

    seconds: float = 30.0
    conditions: tuple[Condition, ...] = ()
    keep: int | None = None
    buffer: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < math.inf or (self.keep is not None and self.keep < 1):
            raise ValueError("it keeps nothing")
        if self.buffer is not None and (self.buffer < 1 or self.buffer & (self.buffer - 1)):
            raise ValueError("a buffer is a power of two")
        if self.backend == "graph":
            raise ValueError("function_graph has no buffers that perf could write")
        if self.functions and self.backend == "auto":
            object.__setattr__(self, "backend", "kprobe")

    @property
    def functions_too(self) -> bool:
        return False  # it records for weeks

    @property
    def to_file(self) -> bool:
        return False  # the contents of perf's buffers do, repeatedly


class Stream(Request):
    """Requests as they happen, with only the names of their files."""

    def __init__(self, mounts: tuple[str, ...] = ()) -> None:
        super().__init__(mounts=mounts, detail="latency")

    @property
    def names(self) -> bool:
        return True

    @property
    def to_file(self) -> bool:
        return False


@dataclass(frozen=True)
class Caller(Limited):
    """Records process ``caller``, which already runs, and its descendants."""

    caller: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.caller <= 0:
            raise ValueError("a caller is a process")

    @property
    def callers(self) -> bool:
        return True


@dataclass(frozen=True)
class Workload(Limited):
    """Runs ``command`` and records it."""

    command: tuple[str, ...] = ()  # never empty
    log: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.command:
            raise ValueError("a workload is a command")


@dataclass(frozen=True)
class Count(Request):
    """Counts in the kernel while ``command`` runs: no recording, none of a recording's options."""

    command: tuple[str, ...] = ()  # never empty

    def __init__(self, command: tuple[str, ...], mounts: tuple[str, ...] = ()) -> None:
        super().__init__(mounts=mounts)
        object.__setattr__(self, "command", command)
        if not command:
            raise ValueError("a workload is a command")
