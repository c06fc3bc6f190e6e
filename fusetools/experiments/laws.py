"""Comparison of an experiment's figures with its laws and with published values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fusetools.experiments import named
from fusetools.experiments.folder import Run
from fusetools.plan.experiment import Experiment, Law, Point, fill, matches
from fusetools.results.estimate import Estimate
from fusetools.results.sweep import LawAt, PublishedAt

Done = Sequence[tuple[Point, Sequence[Run]]]  # points with their runs, at least one each


def laws(experiment: Experiment, done: Done) -> Iterator[LawAt]:
    """Yield the laws at each point, with their verdicts over the runs."""
    for point, runs in done:
        for law in experiment.laws:
            expected = law.expected(point)
            requests = law.figure not in named.OF_RUNS
            if expected is None or (requests and _is_base(experiment, point)):
                continue
            yield _at(experiment, law, expected, point, runs, done)


def _is_base(experiment: Experiment, point: Point) -> bool:
    return bool(experiment.relative and experiment.relative.is_base(point))


def _at(
    experiment: Experiment,
    law: Law,
    expected: tuple[float, float],
    point: Point,
    runs: Sequence[Run],
    done: Done,
) -> LawAt:
    measured = named.of_runs(runs, law.figure, point)
    if law.over:
        measured = _over(law, measured, point, done)
    # A count is exact: one run out of the range disproves the law.
    exact = named.is_count(law.figure)
    counts = named.values(runs, law.figure, point) if exact and not law.over else None
    ends = (
        (min(counts), max(counts))
        if counts
        else (measured.low, measured.high)
        if measured
        else None
    )
    verdict = _verdict(exact, expected, measured, ends)
    since = ""
    if ends and verdict == "differs":
        since = law.fewer if ends[1] < expected[0] else law.more if ends[0] > expected[1] else ""
    return LawAt(
        law=law.about,
        label=experiment.label(point),
        figure=law.figure,
        low=expected[0],
        high=expected[1],
        measured=measured,
        verdict=verdict,
        since=since,
        source=law.source,
    )


def differing(done: Done, point: Point, values: Mapping[str, str]) -> tuple[Point, Sequence[Run]]:
    """Return the point that differs by these values alone, which may contain parameters, and its
    runs: none if it has not been run."""
    wanted = {**point, **{name: fill(value, point) for name, value in values.items()}}
    return wanted, next((runs for other, runs in done if other == wanted), ())


def _over(law: Law, one: Estimate | None, point: Point, done: Done) -> Estimate | None:
    """Return the ratio of the figure to that at the point which differs by the law's ``over``."""
    wanted, runs = differing(done, point, law.over)
    other = named.of_runs(runs, law.figure, wanted)
    return named.ratio(one, other) if one and other else None


def _verdict(
    exact: bool,
    expected: tuple[float, float],
    measured: Estimate | None,
    ends: tuple[float, float] | None,
) -> str:
    """Return "holds", "differs", or "unseen" if the runs cannot tell.

    A measured time or rate varies: one run proves nothing, and neither does an interval of which
    only a part is in the range."""
    if measured is None or ends is None:
        return "unseen"
    inside = expected[0] <= ends[0] and ends[1] <= expected[1]
    if exact:
        return "holds" if inside else "differs"
    if measured.runs < 2:
        return "unseen"
    apart = ends[1] < expected[0] or ends[0] > expected[1]
    return "holds" if inside else "differs" if apart else "unseen"


def published(
    experiment: Experiment, done: Done, relative: Mapping[int, Estimate | None]
) -> Iterator[PublishedAt]:
    """Yield the published values about the points that have runs, beside the own ones.

    ``relative``: the relative throughput by the index in ``done``."""
    for i, (point, runs) in enumerate(done):
        for row in experiment.published:
            if not matches(row.at, point):
                continue
            own = named.of_runs(runs, row.figure, point)
            yield PublishedAt(
                label=experiment.label(point),
                figure=row.figure,
                series=row.series,
                low=row.low,
                high=row.high,
                here=relative.get(i) if row.figure == named.RELATIVE else own,
                source=row.source,
            )
