"""Which errors requests were answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows


class Answered(NamedTuple):
    """``times``: how often ``name`` occurred: an error, a fate, a system call."""

    name: str
    times: int


@dataclass(frozen=True)
class OperationErrors:
    """What the requests of one operation were answered with.

    ``requests`` were answered, ``errors`` of them with an error: (name, requests), most first.
    ``negative``: lookups answered without an error and without an inode, which lets the kernel
    remember that there is no such file; None if the recording does not show it. ``unanswered``:
    (fate, requests) of those without an answer, in addition to ``requests``.
    """

    operation: str
    requests: int
    errors: tuple[Answered, ...] = ()
    negative: int | None = None
    unanswered: tuple[Answered, ...] = ()

    JSON_SHOWN = ("failed",)

    @property
    def failed(self) -> int:
        return sum(n for _, n in self.errors)

    @property
    def absent(self) -> int:
        """Lookups of missing files, as far as the recording shows them."""
        return dict(self.errors).get("ENOENT", 0) + (self.negative or 0)


@dataclass(frozen=True, repr=False)
class Errors(Rows):
    """By operation, most errors first; operations without errors come last.

    ``disconnected``: (system call, calls) that failed with ENOTCONN: their mount no longer had a
    daemon, so no request was made.
    """

    operations: tuple[OperationErrors, ...]
    facts: Facts
    disconnected: tuple[Answered, ...] = ()

    ROWS = "operations"
    JSON_HIDDEN = ("facts",)
