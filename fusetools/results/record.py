"""Result of `fusetools record`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fusetools.reasons import Reason
from fusetools.results.units import Bytes, Seconds
from fusetools.session import Throttled, Took


@dataclass(frozen=True)
class Usage:
    """Resources used by a workload and the children that it waited for.

    ``user_seconds`` and ``system_seconds``: CPU time; ``switches``: context switches;
    ``read_bytes`` and ``written_bytes``: bytes read and written by system calls (rchar and wchar of
    proc(5)), None if the kernel does not report them.
    """

    user_seconds: Seconds
    system_seconds: Seconds
    switches: int
    read_bytes: Bytes | None = None
    written_bytes: Bytes | None = None


@dataclass
class Outcome:
    """Result of a recording. ``output``: None if there is no file."""

    output: Path | None = None
    size_bytes: Bytes = 0
    seconds: Seconds = 0.0
    events: int = 0
    requests: int = 0
    lost: int = 0
    exit_status: int = 0
    missing: tuple[Reason, ...] = ()
    warnings: list[str] = field(default_factory=list)
    throttled: list[Throttled] = field(default_factory=list)  # by quotas of cgroups
    failed: bool = False  # a recorder failed, or the file is incomplete or has another name
    left: bool = False  # the workload hung and still runs
    interrupted: bool = False  # by a signal
    usage: Usage | None = None  # the workload's
    took: Took | None = None  # overhead
