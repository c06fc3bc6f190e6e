"""The parts of a report that are of several recordings, or of sweeps."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log

from fusetools.errors import Error
from fusetools.measure.compared import TIME, Compared, Measure
from fusetools.measure.figures import Estimate
from fusetools.measure.sweep import PointFigures, Sweep
from fusetools.render import compared as compared_text
from fusetools.render import measured as measured_text
from fusetools.render.markup import Child, Markup, error, join, listed, note, table, tag
from fusetools.render.measured import aligned, command_line, confidence, main_operations, size
from fusetools.render.plots import Panel, Place, Series, histograms, marker, points
from fusetools.render.text import duration, number, plural

# compare


def compared(result: Compared | Error) -> Markup:
    """Each operation's figures beside one another, and its histograms over the same times."""
    if isinstance(result, Error):
        return error(result)
    letters = string.ascii_uppercase
    names = [tag("li", tag("b", letter), f" {name}") for letter, name in zip(letters, result.sides)]
    said = [tag("ul", names, class_="sides")]
    hidden: dict[str, None] = {}
    for group in result.groups:
        if group.label:
            said.append(tag("h3", group.label))
        shown = compared_text.shown(group)
        hidden.update(dict.fromkeys(m.name for m in group.measures if m not in shown))
        cards = [_measure(measure) for measure in shown]
        said.append(tag("div", cards, class_="cards") if cards else tag("p", "No calls."))
    if hidden:
        said.append(note(f"Few calls, only in fusetools compare: {', '.join(hidden)}."))
    said.append(note(compared_text.how(result)))
    said += [note(line) for line in result.notes]
    return join(said)


def _measure(measure: Measure) -> Markup:
    time = measure.name == TIME
    heading = ("", "runs", "median") if time else ("", "calls", "p50", "p99")
    rows: list[Sequence[Child]] = []
    panels, verdicts = [], []
    for i, (letter, side) in enumerate(zip(string.ascii_uppercase, measure.sides)):
        best = "" if side.times_best is None else f"{side.times_best:.2f}"
        figures = [number(round(side.count)), duration(side.p50)]
        if not time:
            figures.append(duration(side.p99))
        rows.append((tag("b", letter), *figures, best))
        verdict = compared_text.verdict(side)
        if verdict:
            verdicts.append(tag("p", tag("b", letter), f": {verdict}", class_="note"))
        if side.buckets:
            marks = [("p50", round(side.p50))] if side.p50 is not None else []
            panels.append(Panel(tag("b", letter), f"c{i % _COLOURS}", side.buckets, marks))
    return tag(
        "figure",
        tag("h4", measure.name),
        table((*heading, "x best"), rows, "<" + ">" * len(heading)),
        verdicts,
        histograms(panels, measure.name),
    )


# sweep

_COLOURS = 6


@dataclass(frozen=True)
class _Figure:
    """A plot: what of a point is drawn, and how a value is said."""

    title: str
    of: Callable[[PointFigures], Estimate | None]
    show: Callable[[float], str]


def sweep(result: Sweep) -> Markup:
    """Each figure over the parameter, with its confidence interval; then all in tables."""
    experiment = result.experiment
    said = [tag("p", experiment.about)] if experiment.about else []
    rows = [("Command", tag("code", command_line(experiment.command)))]
    caches = "empty" if experiment.caches == "drop" else "as they were"
    said.append(listed([*rows, ("Caches", f"{caches} before each run")]))
    if result.points:
        how = max((one.seconds for one in result.points), key=lambda e: e.runs)
        said.append(tag("p", f"Medians of {plural(how.runs, 'run')}; {confidence(how)}."))
        shown, minor = main_operations(result)
        said.append(_plots(result, shown))
        said += [tag("h3", "Figures"), _table(result, measured_text.points(result))]
        said += [
            join(tag("h3", name), _table(result, measured_text.operation(result, name)))
            for name in shown
        ]
        if minor:
            said.append(note(f"Few requests, only in sweep.csv: {', '.join(minor)}."))
    else:
        said.append(tag("p", "No run is done yet."))
    said += [note(f"Left out: {value}: {why}") for value, why in result.left_out.items()]
    if not experiment.trace:
        said.append(note("Not recorded (--no-trace): the requests."))
    if result.lost:
        lost = f"{plural(result.lost, 'event')} LOST"
        said.append(tag("p", tag("strong", lost), " in all runs: counts are too low"))
    said += [note(f"Warning: {warning}") for warning in result.warnings]
    if result.to_do:
        said.append(note(f"{plural(result.to_do, 'run')} to do yet."))
    return join(said)


def _seconds(value: float) -> str:
    return duration(1e9 * value)


def _plots(result: Sweep, operations: Sequence[str]) -> Markup:
    """Over the axis with most values, a series for each point of the others."""
    axes = result.experiment.axes
    if not axes:
        return join()
    axis = max(axes, key=lambda name: len(result.experiment.params[name]))
    places, between = _places(result.experiment.params[axis])
    others = [name for name in axes if name != axis]
    series: dict[str, list[PointFigures]] = {}
    for one in result.points:
        label = " ".join(f"{name}={one.point[name]}" for name in others)
        series.setdefault(label, []).append(one)
    figures = [
        _Figure("Bandwidth", lambda one: one.bandwidth, lambda v: f"{size(v)}/s"),
        _Figure("Time", lambda one: one.seconds, _seconds),
        _Figure("CPU time, user", lambda one: one.user, _seconds),
        _Figure("CPU time, system", lambda one: one.system, _seconds),
        _Figure("Context switches", lambda one: one.switches, _count),
    ]
    for name in operations:
        figures += _of_operation(name)
    cards = []
    for figure in figures:
        drawn = []
        for i, found in enumerate(series.values()):
            along = sorted(_series(found, figure, axis, places), key=lambda place: place.x)
            drawn.append(Series(f"c{i % _COLOURS}", along, between))
        if not any(one.places for one in drawn):
            continue
        plot = points(drawn, _ticks(places), figure.show, f"{figure.title} over {axis}")
        heading = tag("h4", figure.title, tag("span", f" over {axis}", class_="dim"))
        cards.append(tag("figure", heading, plot))
    keys = [
        tag("span", marker(i, f"c{i % _COLOURS}"), label) for i, label in enumerate(series) if label
    ]
    legend = tag("p", keys, class_="legend") if keys else join()
    return join(legend, tag("div", cards, class_="cards"))


def _of_operation(name: str) -> Iterable[_Figure]:
    def of(key: str) -> Callable[[PointFigures], Estimate | None]:
        def found(one: PointFigures) -> Estimate | None:
            at = one.requests.get(name)
            value: Estimate | None = getattr(at, key) if at else None
            return value

        return found

    yield _Figure(f"{name}: requests", of("count"), _count)
    yield _Figure(f"{name}: p50", of("p50"), duration)
    yield _Figure(f"{name}: p99", of("p99"), duration)
    yield _Figure(f"{name}: mean size", of("size"), size)


def _count(value: float) -> str:
    return number(round(value)) if value >= 10 else number(float(value))


def _series(
    found: Iterable[PointFigures], figure: _Figure, axis: str, places: dict[str, float]
) -> Iterable[Place]:
    for one in found:
        e = figure.of(one)
        if e is not None:
            between = f" ({figure.show(e.low)} to {figure.show(e.high)})" if e.runs > 1 else ""
            title = f"{one.label}: {figure.show(e.median)}{between}"
            yield Place(places[one.point[axis]], e.median, e.low, e.high, title)


_SCALES = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _places(values: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Where each value stands, 0 to 1: by its logarithm where all are sizes, else evenly; and
    whether there is something between them."""
    sizes = [re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([kKMGT]?)", value) for value in values]
    at = [float(m[1]) * _SCALES[m[2]] if m else 0.0 for m in sizes]
    sized = min(at) > 0 and len(set(at)) > 1
    if sized:
        low, high = log(min(at)), log(max(at))
        found = [(log(value) - low) / (high - low) for value in at]
    else:
        found = [i / max(len(values) - 1, 1) for i in range(len(values))]
    return {value: 0.04 + 0.92 * x for value, x in zip(values, found)}, sized


_LONG = 16


def _ticks(places: dict[str, float]) -> list[tuple[float, str]]:
    """As many as have room in a narrow window."""
    shown: list[tuple[float, str]] = []
    for value, x in sorted(places.items(), key=lambda one: one[1]):
        room = 0.028 * (min(len(value), _LONG) + 2)
        if not shown or x - shown[-1][0] >= max(room, 0.1):
            shown.append((x, value if len(value) <= _LONG else f"{value[: _LONG - 1]}…"))
    return shown


def _table(result: Sweep, rows: Sequence[Sequence[str]]) -> Markup:
    heading, *more = rows
    figures = len(heading) - len(result.experiment.axes)
    return table(heading, more, aligned(result) + ">" * figures)
