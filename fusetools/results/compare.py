"""Comparison of recordings or sweeps with the best of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fusetools.reasons import Code, Reason
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

    JSON_SHOWN = ("verdict",)

    @property
    def verdict(self) -> Reason | None:
        """The best side, where a difference is real; None: no difference was tested."""
        best: Counter[int] = Counter()
        most: tuple[float, Measure] | None = None
        points = 0
        for group in self.groups:
            # The time is not tested where each side has a single one, as recordings have.
            tested = [m for m in group.measures if any(side.p is not None for side in m.sides)]
            named = [m for m in tested if m.name == TIME] or tested
            weighed = [(_spread(measure), measure) for measure in named]
            real = [(gap, m) for gap, m in weighed if any(side.differs for side in m.sides)]
            points += bool(weighed)
            if not real:
                continue
            gap, measure = max(real, key=lambda row: row[0])
            best[min(range(len(measure.sides)), key=lambda at: _p50(measure.sides[at]))] += 1
            if most is None or gap > most[0]:
                most = gap, measure
        if not points or not self.tests:
            return None
        if most is None:
            return Reason(Code.COMPARED_ALIKE, {}, {"points": points})
        measure = most[1]
        side, wins = best.most_common(1)[0]
        times = max(each.times_best or 1.0 for each in measure.sides)
        figures = {"points": points, "wins": wins, "times": round(times, 2)}
        subject = {"side": chr(ord("A") + side), "path": self.sides[side]}
        if measure.name != TIME:
            subject["operation"] = measure.name
        return Reason(Code.COMPARED_BEST, subject, figures)


def _p50(side: Figures) -> float:
    return float("inf") if side.p50_ns is None else side.p50_ns


def _spread(measure: Measure) -> float:
    """Return how much time the slowest side takes more than the fastest."""
    times = [
        side.p50_ns * (1 if measure.name == TIME else side.count)
        for side in measure.sides
        if side.p50_ns is not None
    ]
    return max(times) - min(times) if times else 0.0
