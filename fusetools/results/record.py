"""What became of a recording."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fusetools.missing import Missing
from fusetools.results.units import Bytes, Seconds
from fusetools.session import Throttled, Took


@dataclass(frozen=True)
class Usage:
    """Resources used by a workload and the children that it waited for.

    ``user_seconds`` and ``system_seconds``: CPU time, s; ``switches``: context switches;
    ``read_bytes`` and ``written_bytes``: bytes that its system calls read and wrote (proc(5), rchar
    and wchar), None if the kernel does not report them.
    """

    user_seconds: Seconds
    system_seconds: Seconds
    switches: int
    read_bytes: Bytes | None = None
    written_bytes: Bytes | None = None


@dataclass
class Outcome:
    """What became of a recording. ``output`` is None when there is no file."""

    output: Path | None = None
    size_bytes: Bytes = 0
    seconds: Seconds = 0.0
    events: int = 0
    requests: int = 0
    lost: int = 0
    exit_status: int = 0
    missing: tuple[Missing, ...] = ()
    warnings: list[str] = field(default_factory=list)
    throttled: list[Throttled] = field(default_factory=list)  # by quotas of cgroups
    failed: bool = False  # perf ended early, or the file is unchanged from perf
    left: bool = False  # the workload was left behind, as it hangs
    interrupted: bool = False  # by a signal
    usage: Usage | None = None  # the workload's
    took: Took | None = None  # from the recorded processes
