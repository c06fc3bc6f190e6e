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


class Refused(NamedTuple):
    """Requests whose answer the kernel refused: the daemon's write to FUSE's device failed.

    ``numbers``: those of some of them; ``waiting``: number of callers that still waited at the
    recording's end.
    """

    operation: str
    error: str
    requests: int
    numbers: tuple[int, ...]
    waiting: int


class Dropped(NamedTuple):
    """Requests that a thread of the daemon read and never answered, while it went on to others."""

    operation: str
    requests: int
    numbers: tuple[int, ...]
    waiting: int


class Aborted(NamedTuple):
    """Number of ``requests`` that a process aborted. The other fields: as in ``Aborter``."""

    by: str
    comm: str
    pid: int | None
    requests: int


class Interrupts(NamedTuple):
    """Requests whose callers of one name got signals while they waited: the kernel sends the daemon
    an INTERRUPT for each.

    ``signal``: the first one's name; ``signals``: number of all; ``read``: number of INTERRUPTs
    that the daemon was seen to read; ``obeyed``: number of requests answered with EINTR.
    """

    operation: str
    comm: str
    signal: str
    requests: int
    signals: int
    read: int
    obeyed: int


class Contradicted(NamedTuple):
    """System calls that failed with ``error``, though their last request, of ``operation``, was
    answered without an error. ``earlier``: requests in the background had been answered with it.
    Otherwise EIO: the kernel refused what the answer contained."""

    syscall: str
    error: str
    operation: str
    calls: int
    earlier: bool


@dataclass(frozen=True, repr=False)
class Errors(Rows):
    """Replies by operation, most errors first; operations without errors come last.

    ``disconnected``: number of system calls by name that failed with ENOTCONN: their mount no
    longer had a connection to a daemon, so they made no request. ``refused`` and ``dropped``:
    requests without an answer, for a known reason; ``aborted``: by whom; ``contradicted``: system
    calls whose error no answer contains; ``interrupts``: requests whose callers got signals.
    """

    operations: tuple[OperationErrors, ...]
    facts: Facts
    disconnected: tuple[Answered, ...] = ()
    refused: tuple[Refused, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    aborted: tuple[Aborted, ...] = ()
    contradicted: tuple[Contradicted, ...] = ()
    interrupts: tuple[Interrupts, ...] = ()

    ROWS = "operations"
    JSON_HIDDEN = ("facts",)
