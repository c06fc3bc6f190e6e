"""What a user asked `fusetools record` for, checked once at the edge."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TypedDict

from fusetools.plan.conditions import Condition
from fusetools.session import LEAST_STACK_BYTES, MOST_STACK_BYTES, STACK_BYTES

BACKENDS = ("auto", "graph", "kprobe", "tracepoint")
CALL_GRAPHS = ("auto", "fp", "dwarf", "kernel")
# From the cheapest on; each records what those before it do, and more.
DETAILS = ("latency", "stages", "stacks")


@dataclass(frozen=True)
class Request:
    """What every kind has: Workload, Caller and Attach, which end by themselves, Flight, Stream and
    Count. ValueError: no kind has options of such values; users' are checked before.

    ``mounts``: paths on FUSE mounts, none: every FUSE mount. ``pid``: the daemon, instead of the
    one that was found. ``fs``: a probe set's name or path, with "+GROUP" for each of its optional
    groups; None: by the daemon's libraries. ``call_graph``: how user stacks are recorded: "fp",
    "dwarf", "kernel" for the kernel's alone, or "auto": "fp", but "dwarf" for those waits of
    daemons whose code keeps no frame pointers that are not for a request; ``stack_bytes``: how much
    of a stack is copied; ``wakers``: also the stacks of those who wake others.
    ``backend``: one of BACKENDS; ``functions``: shell patterns of the kernel's functions, none: the
    usual ones.
    ``force``: also where the recording is written on a traced mount; ``wait``: until another
    recording has ended. ``detail``: one of DETAILS: requests and callbacks alone; with switches,
    wake-ups, system calls and kernel functions; with stacks and samples for flame graphs.
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
            raise TypeError("a request is of one of the kinds below")
        for name, values in _VALUES.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name}: {getattr(self, name)!r}")
        if self.stack_bytes % 8 or not LEAST_STACK_BYTES <= self.stack_bytes <= MOST_STACK_BYTES:
            raise ValueError(f"stack_bytes: {self.stack_bytes!r}")
        if self.wakers and self.detail != "stacks":
            raise ValueError("stacks of wakers need the detail stacks")

    @property
    def command(self) -> tuple[str, ...]:
        """The workload's, () for none."""
        return ()

    @property
    def duration(self) -> float | None:
        """Seconds, None: until the workload ends, or Ctrl-C."""
        return None

    @property
    def max_size(self) -> int:
        """Bytes after which it ends."""
        return sys.maxsize

    @property
    def callers(self) -> bool:
        """Whether it is about certain callers, whose switches and system calls are recorded."""
        return bool(self.command)

    @property
    def functions_too(self) -> bool:
        """Whether the usual functions of the kernel are recorded."""
        return self.detail != "latency"

    @property
    def names(self) -> bool:
        """Whether the names of files are recorded: what the detail latency is for has none."""
        return self.detail != "latency"

    @property
    def kept(self) -> bool:
        """Whether it becomes a file; else its events are wanted at once."""
        return True

    @property
    def log(self) -> int | None:
        """The open file that the workload's own output goes to, None: where ours goes."""
        return None


_VALUES = {"backend": BACKENDS, "call_graph": CALL_GRAPHS, "detail": DETAILS}


class Options(TypedDict, total=False):
    """Fields of a Request that the user has options for, whatever runs it."""

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
    """With those of a Limited one."""

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
    """Records the daemons, whoever uses their mounts."""


@dataclass(frozen=True)
class Flight(Request):
    """Records all the time, and writes the last ``seconds`` when one of ``conditions`` becomes true
    or somebody asks for them; ``keep`` recordings stay. ``buffer``: bytes of each CPU's buffer, a
    power of two; None: by ``seconds``."""

    seconds: float = 30.0
    conditions: tuple[Condition, ...] = ()
    keep: int = 10
    buffer: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < math.inf or self.keep < 1:
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
    def kept(self) -> bool:
        return False  # what perf's own buffers hold does, again and again


class Stream(Request):
    """Requests as they happen, with the names of their files and no more than that."""

    def __init__(self, mounts: tuple[str, ...] = ()) -> None:
        super().__init__(mounts=mounts, detail="latency")

    @property
    def names(self) -> bool:
        return True

    @property
    def kept(self) -> bool:
        return False


@dataclass(frozen=True)
class Caller(Limited):
    """Records process ``caller``, which runs already, and those that descend from it."""

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
    """Counts in the kernel while ``command`` runs: no recording, and none of its options."""

    command: tuple[str, ...] = ()  # never empty

    def __init__(self, command: tuple[str, ...], mounts: tuple[str, ...] = ()) -> None:
        super().__init__(mounts=mounts)
        object.__setattr__(self, "command", command)
        if not command:
            raise ValueError("a workload is a command")
