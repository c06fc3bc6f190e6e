"""Answers about the recordings of many hosts that single recordings do not have."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.groups import Times
from fusetools.results.hist import Histogram
from fusetools.results.rows import Rows
from fusetools.results.units import Ns

# Groupings of `fusetools fleet --by` besides the labels of `fusetools export --label`.
BY = ("host", "kernel", "version", "mount", "date", "hour", "comm", "user", "cgroup", "job")
# Measures of outliers: number of requests, percentiles of the latency, share of failed ones.
MEASURES = ("requests", "p50_ns", "p99_ns", "failed_share")


@dataclass(frozen=True)
class Outlier:
    """A group whose ``measure`` is far from that of the other groups.

    ``value``: its measure; ``low`` and ``high``: interval of it that holds the true value with a
    probability of 99.9 %; ``times``: it in relation to ``median``, that of all groups. ``far``:
    distance of the nearer end of the interval from the median, in scaled median absolute
    deviations. ``requests``: of the group."""

    by: str
    label: str
    measure: str
    value: float
    low: float
    high: float
    median: float
    times: float
    far: float
    requests: int


@dataclass(frozen=True)
class Grouping:
    """Number of ``groups`` that were compared with each other; too few have no outliers."""

    by: str
    groups: int
    enough: bool


@dataclass(frozen=True, repr=False)
class Outliers(Rows):
    """Outliers by grouping, farthest first."""

    outliers: tuple[Outlier, ...]
    compared: tuple[Grouping, ...]
    facts: Facts

    ROWS = "outliers"
    JSON_HIDDEN = ("facts",)


@dataclass(frozen=True)
class FleetCause:
    """A finding of `fusetools why` in many recordings.

    ``share``: its part of the time that callers waited in all recordings."""

    code: str
    hosts: int
    recordings: int
    time_ns: Ns
    share: float


@dataclass(frozen=True, repr=False)
class Causes(Rows):
    """Findings, most time first. ``unasked``: number of recordings without findings to read."""

    causes: tuple[FleetCause, ...]
    recordings: int
    waited_ns: Ns
    unasked: int
    facts: Facts

    ROWS = "causes"
    JSON_HIDDEN = ("facts",)


@dataclass(frozen=True)
class HostInTime:
    """A host with its latency: of all requests, and of those of each step of the time.

    ``outlier``: it differs from most hosts."""

    label: str
    outlier: bool
    histogram: Histogram | None
    steps: tuple[Times | None, ...]


@dataclass(frozen=True)
class Overview:
    """The page about a fleet. ``hosts``: outliers first, then by their requests' time; ``others``:
    number of hosts that are left out; ``first_ns``: begin of the first step, since 1970;
    ``step_ns``: an hour or a day."""

    outliers: Outliers
    causes: Causes
    hosts: tuple[HostInTime, ...]
    others: int
    first_ns: Ns
    step_ns: Ns
    facts: Facts
