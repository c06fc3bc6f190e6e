"""Selection of the part of a recording that an answer covers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Filters:
    """A selection of calls and requests. Empty: all of them.

    ``pids`` and ``comms`` are those of the caller, whose system call made the request. ``mounts``
    are mount points of the session. ``start_ns`` and ``end_ns`` count from the first event.
    """

    pids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def callers(self) -> bool:
        """Return whether only the calls of some callers or mounts are selected."""
        return bool(self.pids or self.comms or self.mounts)
