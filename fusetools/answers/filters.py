"""Which part of a recording an answer covers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Filters:
    """What to include. Empty: everything.

    ``pids`` and ``comms`` are those of the caller, whose system call made the request; ``mounts``
    are mount points of the session; ``start`` and ``end`` are ns since the first event.
    """

    pids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
