"""Requests by file, directory, process, and so on."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.reasons import Reason
from fusetools.results.errors import Answered
from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns

# Groupings that need the processes that a recording notes.
OF_PROCESSES = ("user", "cgroup", "job")
# Orders of groups, the greatest first: time that callers waited, number of requests, duration of
# the slowest request, number of requests with an error or without an answer.
ORDERS = ("time", "requests", "slowest", "errors")


@dataclass(frozen=True)
class Times:
    """Durations of ``count`` requests. None: there are none; from ``least_ns`` on: lower bounds."""

    count: int
    total_ns: Ns
    p50_ns: Ns | None
    p90_ns: Ns | None
    p99_ns: Ns | None
    max_ns: Ns | None
    least_ns: Ns | None


@dataclass(frozen=True)
class RequestGroup:
    """Requests that have something in common, or the sum of ``others`` such groups.

    ``label``: what they have in common, "" where ``unknown`` says why it is not known, and for a
    sum. A process has its command line as ``label``, "" if the recording does not have it, ``comm``
    the name of the thread that called last. A path with "…" is not recorded from the mount point
    on: different files may share it.

    The sums of all groups are the figures of the commands without grouping: ``requests`` and
    ``stages_ns`` those of `stages`, ``begun`` that of `count`, ``latency`` that of `hist` (request
    layer), ``answered``, ``errors``, ``negative`` and ``unanswered`` those of `errors`. ``whole``
    includes the caller's time before and after the request, as in `stages` and `slow`.
    ``time_share`` and ``requests_share`` are those of this group in all of them. ``slowest``:
    number of the slowest request, None if it has none.
    """

    label: str
    pid: int | None
    comm: str
    others: int
    unknown: Reason | None
    requests: int
    requests_share: float
    begun: int
    whole: Times
    time_share: float
    latency: Times
    stages_ns: dict[str, Ns]
    answered: int
    errors: tuple[Answered, ...]
    negative: int | None
    unanswered: tuple[Answered, ...]
    slowest: int | None

    JSON_SHOWN = ("failed",)

    @property
    def failed(self) -> int:
        """Number of requests with an error, without an answer, or (lookups) without a file."""
        return sum(n for _, n in (*self.errors, *self.unanswered)) + (self.negative or 0)


@dataclass(frozen=True, repr=False)
class Groups(Rows):
    """Requests by ``by``, in the order of ``order``; then those without a label, and the sum of the
    groups that are not listed.

    ``guessed``, ``pathless``: as in Slowest. ``inherited``: number of requests whose process ended
    before its user, cgroup and job were noted, and counts to those of its parent. ``full``: there
    are too many groups to order them all: some of those that are not listed may belong before
    others."""

    by: str
    order: str
    groups: tuple[RequestGroup, ...]
    guessed: bool
    pathless: int | None
    inherited: int
    full: bool
    facts: Facts

    ROWS = "groups"
    JSON_HIDDEN = ("facts",)
