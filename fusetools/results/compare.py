"""Comparison of recordings or sweeps with the best of them."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.hist import Bucket
from fusetools.results.units import NsFloat

LEVEL = 0.05  # maximum share of the differences reported as real that are due to chance


# Durations of consecutive calls are correlated. So the test uses the medians of this number of
# stretches of a recording (the method of batch means).
STRETCHES = 20


TIME = "time"  # name of the measure for a run's elapsed time


@dataclass(frozen=True)
class Figures:
    """One side of a measure. Times are None without calls.

    ``count``: number of calls, for a sweep the median of its runs. ``total_ns``: sum of all calls,
    for a sweep None. ``p50_ns``, ``p99_ns``: percentiles of calls, for a sweep the medians of its
    runs' percentiles. ``buckets``: histogram of calls, for a sweep of all its runs.
    ``times_best``: p50 divided by the smallest p50 of all sides. ``slower``: probability that a
    value of this side exceeds one of the best side (ties count half), 0 to 1. ``p``: probability of
    so large a difference by chance (Mann-Whitney U, two-sided, adjusted). ``differs``: whether the
    side differs from the best one; None for the best side, and with too few values.
    """

    count: float
    p50_ns: NsFloat | None
    p99_ns: NsFloat | None
    buckets: tuple[Bucket, ...] = ()
    times_best: float | None = None
    slower: float | None = None
    p: float | None = None
    differs: bool | None = None
    total_ns: NsFloat | None = None


@dataclass(frozen=True)
class Measure:
    """A measure. ``name``: an operation, or TIME; ``sides``: in the order of the arguments."""

    name: str
    layer: str
    sides: tuple[Figures, ...]


@dataclass(frozen=True)
class Group:
    """Measures of one point of the sweeps (``label``), or of recordings (``label`` is "")."""

    label: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class Compared:
    """A comparison. ``sides``: their names; ``values``: unit of a tested value, "call" or "run";
    ``tests``: number of tests; ``notes``: remarks on omitted measures."""

    sides: tuple[str, ...]
    groups: tuple[Group, ...]
    values: str
    tests: int
    notes: tuple[str, ...] = ()
    test: str = "Mann-Whitney U, two-sided, Benjamini-Hochberg"
    level: float = LEVEL
