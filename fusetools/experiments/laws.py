"""Comparison of an experiment's requests with what its laws expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetools.experiments.estimate import estimate
from fusetools.experiments.folder import Run
from fusetools.plan.experiment import Experiment, Point
from fusetools.results.sweep import LawAt


def laws(experiment: Experiment, point: Point, runs: Sequence[Run]) -> Iterator[LawAt]:
    """Yield the laws about a point, each with its verdict over the runs."""
    for law in experiment.laws:
        expected = law.expected(point)
        if expected is None:
            continue
        counts = [
            run.requests[law.operation].count if law.operation in run.requests else 0
            for run in runs
        ]
        seen = all(run.requests and not run.lost for run in runs)
        good = all(0 <= count - expected <= law.slack for count in counts)
        verdict = ("holds" if good else "differs") if seen else "unseen"
        yield LawAt(
            law=law.about,
            label=experiment.label(point),
            operation=law.operation,
            expected=expected,
            slack=law.slack,
            requests=estimate(counts) if seen else None,
            verdict=verdict,
            since=law.more if seen and min(counts) > expected + law.slack else "",
        )
