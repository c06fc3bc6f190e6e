"""A request that has ended, as `fusetools trace` prints it."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.units import Bytes, Ns, Seconds


@dataclass(frozen=True)
class Ended:
    """None, or "", where it is not known.

    ``begin``: ns on CLOCK_MONOTONIC, ``ended``: seconds since 1970; ``queue_ns``: of the duration,
    until the daemon's callback began. ``path`` is whole, or has "…" for the part above that is not
    known. ``bytes``: asked for. ``negative``: a lookup that was answered
    without an error: there is no such file.
    """

    operation: str
    mount: str
    path: str | None
    begin: Ns
    ended: Seconds
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
    offset: Bytes | None
