"""Findings: where the time goes that callers waited, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.reasons import Reason
from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns

MOST = 5  # maximum number of findings


class Caller(NamedTuple):
    """A process, and its share of the finding's time."""

    comm: str
    pid: int
    share: float


@dataclass(frozen=True)
class Finding:
    """A cause of waiting.

    ``share``: its part of the time that callers waited; each ns belongs to at most one finding. 0:
    ``time_ns`` is time before the mount was there.
    ``sure``: "measured", or "inferred" where the recording shows no direct evidence. ``against``:
    what speaks against it. ``more``: the command that shows more.
    """

    reason: Reason
    share: float
    time_ns: Ns
    callers: tuple[Caller, ...]
    sure: str
    against: tuple[Reason, ...]
    more: str


class Usual(NamedTuple):
    """The time of an operation's requests that requests take anywhere: copies, wake-ups, the work
    of caller and daemon on their CPUs. Without the parts that findings have."""

    operation: str
    requests: int
    time_ns: Ns
    share: float


@dataclass(frozen=True, repr=False)
class Why(Rows):
    """Findings, most important first, at most MOST.

    ``waited_ns``: the sum of the times that callers waited for ``requests``. ``longest_ns``: the
    longest wait of a process, the sum over its threads. ``ordinary_share``: the part of it that
    requests take anywhere and no finding has; ``usual``: the operations with a tenth of the waiting
    or more in it, most first. ``unknown_share``: the part whose cause the recording does not show.
    ``looked``: codes of all findings that were looked for. ``unknown``: what this recording cannot
    show.
    """

    findings: tuple[Finding, ...]
    requests: int
    waited_ns: Ns
    longest_ns: Ns
    ordinary_share: float
    unknown_share: float
    usual: tuple[Usual, ...]
    looked: tuple[str, ...]
    unknown: tuple[Reason, ...]
    facts: Facts

    ROWS = "findings"
    JSON_HIDDEN = ("facts",)
