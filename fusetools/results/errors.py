"""Error replies by operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows


class Answered(NamedTuple):
    """Number of ``times`` that ``name`` occurred: an error, a fate or a system call."""

    name: str
    times: int


@dataclass(frozen=True)
class OperationErrors:
    """Replies to the requests of one operation.

    ``requests``: number of answered requests; ``errors``: their number by error, most frequent
    first. ``negative``: number of lookups answered without an error and without an inode, so that
    the kernel caches that the file does not exist; None if not recorded. ``unanswered``: number of
    requests by fate without a reply, not included in ``requests``.
    """

    operation: str
    requests: int
    errors: tuple[Answered, ...] = ()
    negative: int | None = None
    unanswered: tuple[Answered, ...] = ()

    JSON_SHOWN = ("failed",)

    @property
    def failed(self) -> int:
        """Number of requests answered with an error."""
        return sum(n for _, n in self.errors)

    @property
    def absent(self) -> int:
        """Number of lookups of missing files, as far as recorded."""
        return dict(self.errors).get("ENOENT", 0) + (self.negative or 0)


@dataclass(frozen=True, repr=False)
class Errors(Rows):
    """Replies by operation, most errors first; operations without errors come last.

    ``disconnected``: number of system calls by name that failed with ENOTCONN: their mount no
    longer had a daemon, so they made no request.
    """

    operations: tuple[OperationErrors, ...]
    facts: Facts
    disconnected: tuple[Answered, ...] = ()

    ROWS = "operations"
    JSON_HIDDEN = ("facts",)
