"""Comparison of recordings or sweeps: times relative to the best side, and tests against noise."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from fusetools import extras
from fusetools.errors import Error
from fusetools.experiments.folder import Folder, Run, is_sweep
from fusetools.experiments.named import timed
from fusetools.figures import plural
from fusetools.recording import Recording
from fusetools.results.compare import (
    LEVEL,
    STRETCHES,
    TIME,
    Compared,
    Figures,
    Group,
    Measure,
)
from fusetools.results.facts import Facts, unlike
from fusetools.results.hist import Bucket

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Durations = NDArray[np.int64]
    Values = Union[Durations, NDArray[np.float64], Sequence[float]]


CALLS = 5  # minimum number of calls in a stretch, else single calls are compared
SKEWED = 1.5  # least ratio of means, which that of the medians does not show, that is remarked


MOST_SIDES = 26  # letters A to Z


def compare(paths: Sequence[Path], layer: str = "request") -> Compared:
    """Compare recordings, sweeps, or the points of one sweep. ``layer``: request or daemon.

    Error: they cannot be compared.
    """
    if len(paths) > MOST_SIDES:
        raise Error(f"{len(paths)} are too many to compare", f"at most {MOST_SIDES}")
    for package in ("numpy", "scipy"):
        extras.need(package, "the comparison computes and tests with it", extras.COMPARE)
    folders = [is_sweep(path) for path in paths]
    if all(folders):
        sweeps = [Folder.open(path) for path in paths]
        return _points(sweeps[0]) if len(sweeps) == 1 else _sweeps(sweeps)
    if any(folders):
        raise Error(
            "cannot compare a sweep with a recording",
            f"{paths[folders.index(True)]} is a sweep",
            "fusetools compare SWEEP SWEEP",
        )
    if len(paths) == 1:
        raise Error("one recording alone cannot be compared", "", "fusetools compare A B")
    return _recordings(paths, layer)


def _recordings(paths: Sequence[Path], layer: str) -> Compared:
    sides: list[dict[str, Durations]] = []
    notes = []
    seconds: list[float] = []
    of: list[tuple[str, Facts]] = []
    for path in paths:
        recording = Recording(path)
        sides.append(durations(recording, layer))
        facts = recording.counts(layers=(layer,)).facts
        seconds.append(facts.seconds)
        of.append((str(path), facts))
        if facts.losses.lost:
            notes.append(f"{path}: {plural(facts.losses.lost, 'LOST event')}: counts are too low")
        notes += [f"{path}: {warning}" for warning in facts.losses.warnings]
        if not sides[-1]:
            notes.append(f"{path}: no {layer} has a duration")
    notes += unlike(of)
    if not any(sides):
        raise Error(
            f"no {layer} has a duration in any of these recordings",
            "",
            "fusetools compare --layer daemon …" if layer == "request" else "fusetools count",
        )
    calls = {n: sum(len(side.get(n, ())) for side in sides) for side in sides for n in side}
    # The time of each recording. It is not tested: a single run does not show the variation.
    measures = [_measure(TIME, "", [(Figures(1, 1e9 * length, None), ()) for length in seconds])]
    measures += [
        _measure(name, layer, [_of_calls(side.get(name)) for side in sides])
        for name in sorted(calls, key=lambda name: (-calls[name], name))
    ]
    names = [str(path) for path in paths]
    return _with_tests(names, [("", measures)], "call", [*notes, *_skewed(measures)])


def _skewed(measures: Sequence[_Untested]) -> list[str]:
    """Remark means that differ by more than noise, where the medians hardly do.

    A part of the calls has become slower."""
    import numpy as np

    differing = []
    for row in measures:
        sides = row.measure.sides
        means = {
            i: float(np.mean(values))
            for i, values in enumerate(row.values)
            if len(values) >= STRETCHES * CALLS
        }
        least = min(means, key=lambda i: means[i], default=0)
        for i, mean in means.items():
            times = mean / max(means[least], 1)
            if times < SKEWED * max((sides[i].p50_ns or 0) / max(sides[least].p50_ns or 0, 1), 1):
                continue
            p = probability(*(stretches(row.values[side], np.mean) for side in (i, least)))
            differing.append((1.0 if p is None else p, row.measure.name, i, least, times))
    letters = string.ascii_uppercase
    return [
        f"a part of {name} is slower in {letters[i]}: its mean is {times:.3g} times that of "
        f"{letters[least]}"
        for p, name, i, least, times in differing
        if p * len(differing) <= LEVEL
    ]


def durations(recording: Recording, layer: str) -> dict[str, Durations]:
    """Return the durations in ns by operation, ordered by begin.

    ``layer``: "request" (from queue to end), or "daemon" (calls of callbacks)."""
    import numpy as np

    found = recording.durations(layer == "daemon")
    return {name: np.frombuffer(raw, "<i8") for name, raw in found.items()}


def _of_calls(values: Durations | None) -> tuple[Figures, Values]:
    if values is None:
        return Figures(0, None, None), ()
    import numpy as np

    n, ordered = len(values), np.sort(values)
    p50, p99 = (float(ordered[(n * p + 99) // 100 - 1]) for p in (50, 99))
    return Figures(n, p50, p99, _buckets(values), total_ns=float(values.sum())), values


def _buckets(values: Durations) -> tuple[Bucket, ...]:
    """Return log2 buckets as in results.hist.Histogram."""
    import numpy as np

    places, counts = np.unique(np.frexp(np.maximum(values, 1))[1] - 1, return_counts=True)
    return tuple(
        Bucket(1 << place if place else 0, (2 << place) - 1, n)
        for place, n in zip(places.tolist(), counts.tolist())
    )


def _sweeps(sweeps: Sequence[Folder]) -> Compared:
    """Compare sweeps point by point, at the points that all have."""
    names = [str(sweep.path) for sweep in sweeps]
    keys = [
        {tuple(point.items()): i for i, point in enumerate(sweep.points) if sweep.of(i)}
        for sweep in sweeps
    ]
    common = [key for key in keys[0] if all(key in points for points in keys)]
    notes = [
        f"only in some: {label}"
        for key in dict.fromkeys(key for points in keys for key in points)
        if key not in common
        for label in [" ".join(f"{name}={value}" for name, value in key)]
    ]
    if not common:
        raise Error("these sweeps have no point in common", "; ".join(notes[:4]))
    groups = []
    for key in common:
        places = [points[key] for points in keys]
        label = sweeps[0].experiment.label(sweeps[0].points[places[0]])
        groups.append((label, _of_runs([sweep.of(i) for sweep, i in zip(sweeps, places)])))
    commands = {sweep.experiment.command for sweep in sweeps}
    if len(commands) > 1:
        notes.append("their commands are not the same")
    return _with_tests(names, groups, "run", [*notes, *_losses(sweeps)])


def _points(sweep: Folder) -> Compared:
    """Compare the points of one sweep."""
    places = [i for i in range(len(sweep.points)) if sweep.of(i)]
    if len(places) < 2:
        raise Error(
            f"{sweep.path} has no two points that were run", "", f"fusetools sweep {sweep.path}"
        )
    if len(places) > MOST_SIDES:
        raise Error(
            f"{sweep.path} has {len(places)} points: too many to compare",
            f"at most {MOST_SIDES}",
            f"fusetools sweep {sweep.path}",
        )
    names = [sweep.experiment.label(sweep.points[i]) for i in places]
    return _with_tests(
        names, [("", _of_runs([sweep.of(i) for i in places]))], "run", _losses([sweep])
    )


def _losses(sweeps: Iterable[Folder]) -> list[str]:
    return [
        f"{sweep.path}: {plural(lost, 'LOST event')} in all runs: counts are too low"
        for sweep in sweeps
        if (lost := sum(run.lost for run in sweep.runs.values()))
    ]


def _of_runs(sides: Sequence[Sequence[Run]]) -> list[_Untested]:
    """Return the measures of runs: the time, then each operation, most requests first."""
    times = [[1e9 * run.seconds for run in timed(runs)] for runs in sides]
    sides = [[run for run in runs if run.recorded] or runs for runs in sides]
    measures = [_measure(TIME, "", [(Figures(len(s), _median(s), None), s) for s in times])]
    calls: dict[str, float] = {}
    layers: dict[str, str] = {}
    for runs in sides:
        for run in runs:
            for name, requests in run.requests.items():
                calls[name] = calls.get(name, 0) + requests.count
                layers[name] = requests.layer
    for name in sorted(calls, key=lambda name: (-calls[name], name)):
        measures.append(_measure(name, layers[name], [_operation(name, runs) for runs in sides]))
    return measures


def _operation(name: str, runs: Sequence[Run]) -> tuple[Figures, Values]:
    requests = [run.requests[name] for run in runs if name in run.requests]
    counts = [r.count for r in requests] + [0] * (len(runs) - len(requests))
    buckets: dict[tuple[int, int], int] = {}
    for r in requests:
        for low, high, n in r.buckets:
            buckets[low, high] = buckets.get((low, high), 0) + n
    rows = tuple(Bucket(low, high, n) for (low, high), n in sorted(buckets.items()) if n)
    p50 = [r.p50 for r in requests if r.p50 is not None]
    p99 = [r.p99 for r in requests if r.p99 is not None]
    return Figures(_median(counts) or 0, _median(p50), _median(p99), rows), p50


def _median(values: Sequence[float]) -> float | None:
    import statistics

    return statistics.median(values) if values else None


@dataclass(frozen=True)
class _Untested:
    """A measure before its test; ``values``: each side's values for the test."""

    measure: Measure
    values: tuple[Values, ...]


def _measure(name: str, layer: str, sides: Sequence[tuple[Figures, Values]]) -> _Untested:
    figures, values = zip(*sides)
    return _Untested(Measure(name, layer, figures), values)


def _with_tests(
    names: Sequence[str],
    groups: Sequence[tuple[str, Sequence[_Untested]]],
    values: str,
    notes: Sequence[str],
) -> Compared:
    """Compare each side with the best, which has the smallest median, and mark real differences.

    At most the share LEVEL of the marked ones are due to chance (Benjamini-Hochberg)."""
    tested: dict[tuple[int, int, int], float] = {}
    best: dict[tuple[int, int], int] = {}
    for g, (_, measures) in enumerate(groups):
        for m, row in enumerate(measures):
            known = [i for i, side in enumerate(row.measure.sides) if side.p50_ns is not None]
            if not known:
                continue
            first = best[g, m] = min(known, key=lambda i: row.measure.sides[i].p50_ns or 0)
            for i in known:
                if i != first and (p := probability(row.values[i], row.values[first])) is not None:
                    tested[g, m, i] = p
    adjusted: Mapping[tuple[int, int, int], float] = {}
    if tested:
        from scipy.stats import false_discovery_control

        ps = false_discovery_control(list(tested.values()))
        adjusted = dict(zip(tested, map(float, ps)))

    def tested_side(g: int, m: int, i: int, side: Figures, sides: Sequence[Figures]) -> Figures:
        if (g, m) not in best or side.p50_ns is None:
            return side
        least = sides[best[g, m]].p50_ns
        ratio = side.p50_ns / least if least else 1.0
        if (g, m, i) not in tested:
            return replace(side, times_best=ratio)
        row = groups[g][1][m]
        slower = larger(row.values[i], row.values[best[g, m]])
        p = adjusted[g, m, i]
        return replace(side, times_best=ratio, slower=slower, p=p, differs=p <= LEVEL)

    return Compared(
        tuple(names),
        tuple(
            Group(
                label,
                tuple(
                    replace(
                        row.measure,
                        sides=tuple(
                            tested_side(g, m, i, side, row.measure.sides)
                            for i, side in enumerate(row.measure.sides)
                        ),
                    )
                    for m, row in enumerate(measures)
                ),
            )
            for g, (label, measures) in enumerate(groups)
        ),
        values,
        len(tested),
        tuple(notes),
    )


def probability(values: Values, best: Values) -> float | None:
    """Return p of the two-sided Mann-Whitney U test.

    None: with so few values, no difference can be significant."""
    if min(len(values), len(best)) >= STRETCHES * CALLS:
        values, best = stretches(values), stretches(best)
    n, m = len(values), len(best)
    if not min(n, m) or (n + m < 1000 and 2 / comb(n + m, n) > LEVEL):
        return None
    from scipy.stats import mannwhitneyu

    p = float(mannwhitneyu(values, best, alternative="two-sided").pvalue)
    return p if p == p else 1.0  # NaN if all values are equal


def stretches(
    values: Values, average: Callable[[Durations], np.floating[Any]] | None = None
) -> list[float]:
    """Return the average of each stretch of consecutive values; by default the median."""
    import numpy as np

    of = average or np.median
    return [float(of(part)) for part in np.array_split(values, STRETCHES)]


def larger(values: Values, best: Values) -> float:
    """Return the probability that a value exceeds one of ``best``, 0 to 1; ties count half."""
    import numpy as np

    ordered = np.sort(best)
    below = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return float(below.sum()) / 2 / (len(values) * len(best))
