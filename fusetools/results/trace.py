"""A request that has ended, as `fusetools trace` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.units import Bytes, Ns, Seconds


@dataclass(frozen=True)
class Ended:
    """A request. None or "": unknown.

    ``begin_ns``: ns on CLOCK_MONOTONIC; ``ended_seconds``: seconds since 1970; ``queue_ns``: time
    until the daemon's callback began. ``path``: complete, or with "…" for unknown parents.
    ``bytes``: as requested; ``answered_bytes``: those in the reply. ``negative``: a lookup
    answered without an error for a file that does not exist.
    """

    operation: str
    mount: str
    path: str | None
    begin_ns: Ns
    ended_seconds: Seconds
    duration_ns: int
    queue_ns: int | None
    error: str
    negative: bool
    comm: str
    pid: int | None
    tid: int | None
    unique: int | None
    daemon_thread: int | None
    bytes: Bytes | None
    offset_bytes: Bytes | None
    answered_bytes: Bytes | None
