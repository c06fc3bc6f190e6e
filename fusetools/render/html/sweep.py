"""Report section: a sweep."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from fusetools.figures import BYTES, duration, number, plural, size
from fusetools.render.html.compare import COLOURS
from fusetools.render.html.markup import Markup, join, listed, note, sentence, table, tag
from fusetools.render.html.plots import Place, Series, marker, points
from fusetools.render.text import sweep as sweep_text
from fusetools.render.text.estimate import confidence
from fusetools.render.text.layout import cut
from fusetools.render.text.sweep import aligned, command_line, main_operations
from fusetools.results.estimate import Estimate
from fusetools.results.sweep import PointFigures, PublishedAt, Sweep


@dataclass(frozen=True)
class _Figure:
    """A plot of one value: ``of`` returns it for a point, ``show`` formats it."""

    title: str
    of: Callable[[PointFigures], Estimate | None]
    show: Callable[[float], str]


def render(result: Sweep) -> Markup:
    """Return plots of each figure over a parameter, with confidence intervals, then tables."""
    experiment = result.experiment
    parts = [tag("p", experiment.about)] if experiment.about else []
    command = command_line(experiment.command)
    code: Markup = tag("code", command)
    if len(command) > sweep_text.LONG:
        summary = tag("code", cut(command, sweep_text.LONG, False))
        code = tag("details", tag("summary", summary), code)
    rows = [("Command", code)]
    caches = "empty" if experiment.caches == "drop" else "as they were"
    parts.append(listed([*rows, ("Caches", f"{caches} before each run")]))
    if result.points:
        how = sweep_text.times(result)
        parts.append(tag("p", f"Medians of {plural(how.runs, 'run')}; {confidence(how)}."))
        if experiment.recorded and experiment.trace:
            parts.append(note(sentence(sweep_text.recorded(result))))
        shown, minor = main_operations(result)
        parts += _relative(result)
        if result.laws:
            heading, *verdicts = sweep_text.laws(result)
            cited = [
                (join(row[0], tag("div", law.source, class_="detail")), *row[1:])
                for row, law in zip(verdicts, result.laws)
            ]
            laws = tag("div", table(heading, cited, "<<>><"), class_="broad")
            parts += [tag("h3", "Laws"), laws]
            parts += map(note, sweep_text.changes(result))
        parts += _published(result)
        parts.append(_plots(result, shown))
        parts += [tag("h3", "Figures"), _table(result, sweep_text.points(result))]
        parts += [
            join(tag("h3", name), _table(result, sweep_text.operation(result, name)))
            for name in shown
        ]
        heading, *of_stages = sweep_text.stages(result)
        if of_stages:
            align = aligned(result) + "<" + ">" * len(heading)
            parts += [tag("h3", "Mean time in stages"), table(heading, of_stages, align)]
        if minor:
            parts.append(note(f"Few requests, only in sweep.csv: {', '.join(minor)}."))
    else:
        parts.append(tag("p", "No run is done yet."))
    parts += [note(f"Left out: {value}: {why}") for value, why in result.left_out.items()]
    if not experiment.trace:
        parts.append(note("Not recorded (--no-trace): the requests."))
    if result.lost:
        lost = plural(result.lost, "LOST event")
        parts.append(tag("p", tag("strong", lost), " in all runs: counts are too low"))
    parts += [note(f"Warning: {warning}") for warning in result.warnings]
    if result.to_do:
        parts.append(note(f"{plural(result.to_do, 'run')} to do yet."))
    return join(parts)


def _seconds(value: float) -> str:
    return duration(1e9 * value)


def _plots(result: Sweep, operations: Sequence[str]) -> Markup:
    """Return plots over the axis with most values, with a series for each point of the others."""
    axes = result.experiment.axes
    if not axes:
        return join()
    axis = max(axes, key=lambda name: len(result.experiment.params[name]))
    places, between = _places(result.experiment.params[axis])
    others = [name for name in axes if name != axis]
    series: dict[str, list[PointFigures]] = {}
    for point in result.points:
        label = " ".join(f"{name}={point.point[name]}" for name in others)
        series.setdefault(label, []).append(point)
    figures = [
        _Figure("Operations per second", lambda point: point.operations_per_second, _count),
        _Figure("Bandwidth", lambda point: point.bytes_per_second, lambda v: f"{size(v)}/s"),
        _Figure("Time", lambda point: point.seconds, _seconds),
        _Figure("CPU time, user", lambda point: point.user_seconds, _seconds),
        _Figure("CPU time, system", lambda point: point.system_seconds, _seconds),
        _Figure("Context switches", lambda point: point.switches, _count),
    ]
    for name in operations:
        figures += _of_operation(name)
    cards = []
    for figure in figures:
        drawn = []
        for i, rows in enumerate(series.values()):
            along = sorted(_series(rows, figure, axis, places), key=lambda place: place.x)
            drawn.append(Series(f"c{i % COLOURS}", along, between))
        if not any(line.places for line in drawn):
            continue
        plot = points(drawn, _ticks(places), figure.show, f"{figure.title} over {axis}")
        heading = tag("h4", figure.title, tag("span", f" over {axis}", class_="dim"))
        cards.append(tag("figure", heading, plot))
    keys = [
        tag("span", marker(i, f"c{i % COLOURS}"), label) for i, label in enumerate(series) if label
    ]
    legend = tag("p", keys, class_="legend") if keys else join()
    return join(legend, tag("div", cards, class_="cards"))


def _relative(result: Sweep) -> list[Markup]:
    heading, *rows = sweep_text.relative(result)
    base = result.experiment.relative
    if not rows or not base:
        return []
    align = aligned(result) + "><<" + "<" * len(sweep_text.series(result, "relative"))
    title = f"Throughput relative to {base.param}={sweep_text.base(result)}"
    return [tag("h3", title), table(heading, rows, align), note(base.source)]


def _published(result: Sweep) -> list[Markup]:
    """Return plots and a table of the published values beside the own ones."""
    if not result.published:
        return []
    axes = result.experiment.axes
    points_ = {point.label: point.point for point in result.points}
    cards = []
    if axes:
        axis = max(axes, key=lambda name: len(result.experiment.params[name]))
        others = [name for name in axes if name != axis]
        groups: dict[tuple[str, str], list[PublishedAt]] = {}
        for row in result.published:
            label = " ".join(f"{name}={points_[row.label][name]}" for name in others)
            groups.setdefault((row.figure, label), []).append(row)
        cards = [
            _beside(result, axis, points_, figure, label, rows)
            for (figure, label), rows in groups.items()
            if any(row.here for row in rows)
        ]
    names = sweep_text.series(result)
    keys = [
        tag("span", marker(i, f"c{i % COLOURS}"), name) for i, name in enumerate(("here", *names))
    ]
    return [
        tag("h3", "Beside the published figures"),
        tag("p", keys, class_="legend"),
        tag("div", cards, class_="cards"),
        tag("details", tag("summary", "All published figures"), _table_of_published(result, names)),
    ]


def _beside(
    result: Sweep,
    axis: str,
    points_: Mapping[str, Mapping[str, str]],
    figure: str,
    label: str,
    rows: Sequence[PublishedAt],
) -> Markup:
    """Return a plot of a figure over an axis: the own values, then each published series."""

    def show(value: float) -> str:
        return sweep_text.value(figure, value)

    used = {points_[row.label][axis] for row in rows}
    places, between = _places([v for v in result.experiment.params[axis] if v in used])
    own = {row.label: row.here for row in rows if row.here}
    lines = [
        [
            Place(places[points_[at][axis]], e.median, e.low, e.high, f"{at}: {show(e.median)}")
            for at, e in own.items()
        ]
    ]
    for name in sweep_text.series(result):
        lines.append(
            [
                Place(
                    places[points_[row.label][axis]],
                    (row.low + row.high) / 2,
                    row.low,
                    row.high,
                    f"{name}, {row.label}: {show(row.low)} to {show(row.high)}",
                )
                for row in rows
                if row.series == name
            ]
        )
    drawn = [Series(f"c{i % COLOURS}", line, between) for i, line in enumerate(lines)]
    title = f" over {axis}" + (f", {label}" if label else "")
    plot = points(drawn, _ticks(places), show, f"{figure}{title}")
    return tag("figure", tag("h4", figure, tag("span", title, class_="dim")), plot)


def _table_of_published(result: Sweep, names: Sequence[str]) -> Markup:
    rows: dict[tuple[str, str], dict[str, PublishedAt]] = {}
    for row in result.published:
        rows.setdefault((row.label, row.figure), {})[row.series] = row
    shown = []
    for (label, figure), by_series in rows.items():
        here = next(iter(by_series.values())).here
        cells = [
            sweep_text.value(figure, (of.low + of.high) / 2) if (of := by_series.get(name)) else ""
            for name in names
        ]
        own = sweep_text.value(figure, here.median) if here else ""
        sources = "; ".join(dict.fromkeys(row.source for row in by_series.values()))
        shown.append((label, figure, own, *cells, sources))
    return table(("at", "figure", "here", *names, "source"), shown, "<<>" + ">" * len(names) + "<")


def _of_operation(name: str) -> Iterable[_Figure]:
    def of(key: str) -> Callable[[PointFigures], Estimate | None]:
        def estimate(point: PointFigures) -> Estimate | None:
            at = point.requests.get(name)
            value: Estimate | None = getattr(at, key) if at else None
            return value

        return estimate

    yield _Figure(f"{name}: requests", of("count"), _count)
    yield _Figure(f"{name}: p50", of("p50_ns"), duration)
    yield _Figure(f"{name}: p99", of("p99_ns"), duration)
    yield _Figure(f"{name}: mean size", of("size_bytes"), size)


def _count(value: float) -> str:
    return number(round(value)) if value >= 10 else number(float(value))


def _series(
    rows: Iterable[PointFigures], figure: _Figure, axis: str, places: dict[str, float]
) -> Iterable[Place]:
    for point in rows:
        e = figure.of(point)
        if e is not None:
            between = f" ({figure.show(e.low)} to {figure.show(e.high)})" if e.runs > 1 else ""
            title = f"{point.label}: {figure.show(e.median)}{between}"
            yield Place(places[point.point[axis]], e.median, e.low, e.high, title)


def _places(values: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Return each value's place from 0 to 1, and whether values between them exist.

    The scale is logarithmic if all values are sizes; otherwise they are evenly spaced."""
    sizes = [re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([kKMGT]?)", value) for value in values]
    at = [float(m[1]) * BYTES[m[2]] if m else 0.0 for m in sizes]
    sized = min(at) > 0 and len(set(at)) > 1
    if sized:
        low, high = log(min(at)), log(max(at))
        shares = [(log(value) - low) / (high - low) for value in at]
    else:
        shares = [i / max(len(values) - 1, 1) for i in range(len(values))]
    return {value: 0.04 + 0.92 * x for value, x in zip(values, shares)}, sized


_LONG = 16


def _ticks(places: dict[str, float]) -> list[tuple[float, str]]:
    """Return as many ticks as fit in a small window."""
    shown: list[tuple[float, str]] = []
    for value, x in sorted(places.items(), key=lambda item: item[1]):
        room = 0.028 * (min(len(value), _LONG) + 2)
        if not shown or x - shown[-1][0] >= max(room, 0.1):
            shown.append((x, value if len(value) <= _LONG else f"{value[: _LONG - 1]}…"))
    return shown


def _table(result: Sweep, rows: Sequence[Sequence[str]]) -> Markup:
    heading, *more = rows
    figures = len(heading) - len(result.experiment.axes)
    return table(heading, more, aligned(result) + ">" * figures)
