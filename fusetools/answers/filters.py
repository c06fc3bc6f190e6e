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

    @property
    def options(self) -> list[str]:
        """The command line's options that select the same."""
        lists = (("--pid", self.pids), ("--comm", self.comms), ("--mount", self.mounts))
        words = [word for name, values in lists for value in values for word in (name, str(value))]
        for name, ns in (("--from", self.start_ns), ("--to", self.end_ns)):
            words += [] if ns is None else [name, f"{ns / 1e9:.9f}".rstrip("0").rstrip(".")]
        return words
