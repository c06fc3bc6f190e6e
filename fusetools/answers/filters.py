"""Which part of a recording an answer covers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Filters:
    """What to include. Empty: everything.

    ``pids`` and ``comms`` are those of the caller, whose system call made the request; ``mounts``
    are mount points of the session; ``start_ns`` and ``end_ns`` are since the first event.
    """

    pids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None
