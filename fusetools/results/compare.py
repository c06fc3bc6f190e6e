"""Recordings or sweeps, compared with the best of them."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.hist import Bucket
from fusetools.results.units import NsFloat

LEVEL = 0.05  # at most this share of the differences reported as real are chance


# Consecutive calls are alike: what slows one down slows down the next one, too. Therefore medians
# of stretches of a recording are tested (the method of batch means).
STRETCHES = 20


TIME = "time"  # the measure of a run's time on the clock


@dataclass(frozen=True)
class Figures:
    """One side of a measure. Times in ns, None if there is nothing to measure.

    ``count``: calls, for a sweep the median of its runs; ``total_ns``: of all calls, for a sweep
    None; ``p50_ns``, ``p99_ns``: of the calls, for a sweep the medians of its runs' figures;
    ``buckets``: of the calls, for a sweep those of all its runs. ``times_best``: p50 over the
    smallest p50 of all sides. ``slower``: how often a value of this side is larger than one of the
    best side's (ties count half), 0 to 1; ``p``: how probable so large a difference is if there is
    none (Mann-Whitney U, two-sided, adjusted); ``differs``: None for the best side, and if there
    are too few values.
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
    """``name``: an operation, or "time"; ``sides`` in the order of the arguments."""

    name: str
    layer: str
    sides: tuple[Figures, ...]


@dataclass(frozen=True)
class Group:
    """Measures that belong together; ``label``: the point of the sweeps, "" for recordings."""

    label: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class Compared:
    """``sides``: their names; ``values``: what a value is, "call" or "run"; ``tests``: number of
    tests made; ``notes``: what the comparison leaves out."""

    sides: tuple[str, ...]
    groups: tuple[Group, ...]
    values: str
    tests: int
    notes: tuple[str, ...] = ()
    test: str = "Mann-Whitney U, two-sided, Benjamini-Hochberg"
    level: float = LEVEL
