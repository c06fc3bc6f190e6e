"""Plots as inline SVG without scripts. Colours are classes of report.css.

Widths are in percent and heights in pixels, so that text keeps its size in any window."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fusetools.figures import duration, number
from fusetools.render.html.markup import Child, Markup, join, tag

Ticks = Sequence["tuple[float, str]"]  # place from 0 to 1, and its text


@dataclass(frozen=True)
class Part:
    """A part of a bar. ``share``: of the whole, 0 to 1; ``kind``: CSS class of its colour."""

    share: float
    kind: str
    letter: str
    title: str


def stacked(parts: Iterable[Part], label: str, length: float = 1.0, height: int = 16) -> Markup:
    """Return a bar of consecutive parts with their letters. ``length``: share of the width."""
    drawn: list[Markup] = []
    at = 0.0
    for part in parts:
        wide = part.share * length
        drawn.append(
            tag(
                "rect",
                tag("title", part.title),
                class_=f"part {part.kind}",
                x=_percent(at),
                width=_percent(wide),
                height=height,
            )
        )
        if wide >= 0.03:
            middle = _percent(at + wide / 2)
            drawn.append(tag("text", part.letter, class_="letter", x=middle, y=height - 4))
        at += wide
    return _svg(height, drawn, label, "bar")


@dataclass(frozen=True)
class Panel:
    """A histogram. ``buckets``: as in results.hist.Histogram; ``marks``: e.g. ("p50", ns)."""

    heading: Markup
    kind: str
    buckets: Sequence[tuple[int, int, int]]
    marks: Sequence[tuple[str, int]] = ()


_PANEL = 44  # pixels


def histograms(panels: Sequence[Panel], label: str) -> Markup:
    """Stack panels over a common logarithmic time axis, each scaled to its own maximum."""
    shown = [panel for panel in panels if panel.buckets]
    if not shown:
        return join()
    first = _decade(min(panel.buckets[0][0] for panel in shown), math.floor)
    last = max(_decade(max(p.buckets[-1][1] + 1 for p in shown), math.ceil), first + 1)

    def place(ns: float) -> float:
        return (math.log10(max(ns, 1)) - first) / (last - first)

    every = 1 if last - first <= 5 else 2  # labels must fit in a small window
    decades = [
        (place(10**n), "" if (n - first) % every else _time(n)) for n in range(first, last + 1)
    ]
    drawn = [
        tag(
            "div",
            tag("p", panel.heading, class_="heading"),
            _svg(_PANEL, [_grid(decades, _PANEL), _bins(panel, place)], f"{label}, histogram"),
            class_="panel",
        )
        for panel in shown
    ]
    return tag("div", drawn, _axis(decades), class_="histograms")


def _bins(panel: Panel, place: Callable[[float], float]) -> Iterable[Markup]:
    most = max(n for _, _, n in panel.buckets)
    for low, high, n in panel.buckets:
        if not n:
            continue
        left, right = place(low), place(high + 1)
        tall = max((_PANEL - 4) * n / most, 2)
        label = f"{duration(low)} to {duration(high + 1)}: {number(n)}"
        yield tag(
            "rect",
            tag("title", label),
            class_=f"bin {panel.kind}",
            x=_percent(left),
            width=_percent(right - left - 0.004),
            y=_PANEL - tall,
            height=tall,
        )
    for name, ns in panel.marks:
        at = _percent(place(ns))
        title = tag("title", f"{name} {duration(ns)}")
        yield tag("line", title, class_="mark", x1=at, x2=at, y1=0, y2=_PANEL)


def _decade(ns: float, rounded: Callable[[float], int]) -> int:
    return rounded(math.log10(max(ns, 1)))


def _time(decade: int) -> str:
    """Format 10**decade ns."""
    unit = min(decade // 3, 3)
    return f"{10 ** (decade - 3 * unit):,} {('ns', 'us', 'ms', 's')[unit]}"


@dataclass(frozen=True)
class Level:
    """A quantity over time. ``parts``: its mean and maximum in each part of the time; ``top``: the
    value at the plot's upper edge."""

    heading: Markup
    kind: str
    parts: Sequence[tuple[float, int]]
    top: float


def levels(shown: Sequence[Level], start: int, end: int, label: str) -> Markup:
    """Stack panels over a common time axis from ``start`` to ``end`` ns, with bars of the means."""
    ticks = [
        ((at - start / 1e9) * 1e9 / max(end - start, 1), text) for at, text in _times(start, end)
    ]
    drawn = [
        tag(
            "div",
            tag("p", level.heading, class_="heading"),
            _svg(_PANEL, [_grid(ticks, _PANEL), _steps(level)], f"{label} over time"),
            class_="panel",
        )
        for level in shown
    ]
    return tag("div", drawn, _axis(ticks), class_="levels")


def _steps(level: Level) -> Iterable[Markup]:
    top = level.top or 1
    wide = 1 / max(len(level.parts), 1)
    for i, (mean, most) in enumerate(level.parts):
        tall = (_PANEL - 4) * min(mean / top, 1)
        if mean > 0:
            yield tag(
                "rect",
                tag("title", f"mean {number(mean)}, most {number(most)}"),
                class_=f"step {level.kind}",
                x=_percent(i * wide),
                width=_percent(wide),
                y=_PANEL - max(tall, 1),
                height=max(tall, 1),
            )


def _times(start: int, end: int) -> list[tuple[float, str]]:
    """Return the ticks: seconds and their text."""
    low, high = start / 1e9, end / 1e9
    step = _step((high - low) / 5) if high > low else 1.0
    digits = max(-math.floor(math.log10(step)), 0)
    first = math.ceil(low / step)
    seconds = [n * step for n in range(first, first + 12) if n * step <= high]
    return [(at, f"{at:.{digits}f} s") for at in seconds]


@dataclass(frozen=True)
class Place:
    """A point at ``x`` (0 to 1) and ``y``, with an error bar from ``low`` to ``high``."""

    x: float
    y: float
    low: float
    high: float
    title: str


@dataclass(frozen=True)
class Series:
    """Points in order, ``joined`` by lines if values between them exist."""

    kind: str
    places: Sequence[Place]
    joined: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map; ``share``: from 0 to 1, its colour's strength."""

    share: float
    title: str


_CELL = 14  # pixels


def heat(rows: Sequence[tuple[Child, Sequence[Cell | None]]], ticks: Ticks, label: str) -> Markup:
    """Return a map with a row of cells for each name, all rows over one axis."""
    drawn: list[Markup] = []
    for name, cells in rows:
        wide = 1 / max(len(cells), 1)
        own = [
            tag(
                "rect",
                tag("title", cell.title),
                class_="cell l-request",
                fill_opacity=f"{0.25 + 0.75 * cell.share:.2f}",
                x=_percent(i * wide),
                width=_percent(wide * 0.94),
                height=_CELL,
            )
            for i, cell in enumerate(cells)
            if cell
        ]
        drawn += [tag("span", name, class_="name"), _svg(_CELL, own, label, "cells")]
    return tag("div", drawn, tag("span"), _axis(ticks), class_="heat")


_TALL = 150  # pixels


_MARKERS = (
    "M-3.5 0A3.5 3.5 0 1 0 3.5 0A3.5 3.5 0 1 0 -3.5 0Z",
    "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "M0 -4.4L4 2.8H-4Z",
    "M0 -4.6L4.6 0L0 4.6L-4.6 0Z",
)


def points(
    shown: Sequence[Series], ticks: Ticks, show: Callable[[float], str], label: str
) -> Markup:
    """Plot series of points with error bars over an axis from 0; ``show`` formats a value."""
    top = max((place.high for series in shown for place in series.places), default=0.0) or 1.0
    step = _step(top / 4)
    count = math.ceil(top / step - 1e-9)
    top = count * step
    values = [n * step for n in range(count + 1)]

    def down(value: float) -> float:
        return 6 + (_TALL - 6) * (1 - value / top)

    drawn: list[Markup] = [
        tag("line", class_="grid", x1="0%", x2="100%", y1=down(v), y2=down(v)) for v in values
    ]
    for i, series in enumerate(shown):
        own: list[Markup] = []
        for a, b in zip(series.places, series.places[1:] if series.joined else ()):
            line = tag(
                "line",
                class_=f"joins {series.kind}",
                x1=_percent(a.x),
                x2=_percent(b.x),
                y1=down(a.y),
                y2=down(b.y),
            )
            own.append(line)
        own += [
            _point(place, series.kind, _MARKERS[i % len(_MARKERS)], down) for place in series.places
        ]
        # Shift each series, so that no error bar hides another.
        drawn.append(tag("g", own, transform=f"translate({5 * (i - (len(shown) - 1) / 2):g})"))
    names = [
        tag("text", _short(show(v)), x="100%", y=min(down(v) + 4, _TALL + 3), class_="end")
        for v in values
    ]
    return tag(
        "div",
        _svg(_TALL + 4, names, "", "values"),
        _svg(_TALL + 4, drawn, label),
        tag("span"),
        _axis(ticks),
        class_="points",
    )


def marker(i: int, kind: str) -> Markup:
    """Return the marker of series ``i`` for a legend."""
    shape = tag("path", class_=f"marker {kind}", d=_MARKERS[i % len(_MARKERS)])
    inner = tag("svg", shape, x=6, y=6, overflow="visible")
    return tag("svg", inner, class_="key", width=12, height=12, aria_hidden="true")


def _point(place: Place, kind: str, shape: str, down: Callable[[float], float]) -> Markup:
    y = down(place.y)
    high, low = down(place.high) - y, down(place.low) - y
    whole: list[Markup] = [tag("title", place.title)]
    if place.high > place.low:
        path = f"M-4 {high:.1f}H4M0 {high:.1f}V{low:.1f}M-4 {low:.1f}H4"
        whole.append(tag("path", class_=f"error {kind}", d=path))
    whole.append(tag("path", class_=f"marker {kind}", d=shape))
    # An inner svg is placed in percent of the outer one, and has pixels inside.
    return tag("svg", whole, x=_percent(place.x), y=f"{y:.1f}", overflow="visible")


def _step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least ``least``."""
    scale = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next((n * scale for n in (1, 2, 5) if n * scale >= least * (1 - 1e-9)), 10 * scale)


def _short(text: str) -> str:
    """Remove trailing zeros: 2.00 ms becomes 2 ms."""
    if re.match(r"0(\.0+)?( |$)", text):
        return "0"
    return re.sub(r"(\.\d*?)0+(?= |$)", lambda m: m[1].rstrip("."), text)


def _grid(ticks: Ticks, height: int) -> Iterable[Markup]:
    for at, _ in ticks:
        x = _percent(at)
        yield tag("line", class_="grid", x1=x, x2=x, y1=0, y2=height)


def _axis(ticks: Ticks) -> Markup:
    names = []
    for at, text in ticks:
        if not text:
            continue
        side = "start" if at < 0.03 else "end" if at > 0.97 else "middle"
        names.append(tag("text", text, x=_percent(at), y=12, class_=side))
    return _svg(16, names, "", "axis")


def _svg(height: int, content: Iterable[Child], label: str, kind: str = "plot") -> Markup:
    return tag(
        "svg",
        content,
        class_=kind,
        width="100%",
        height=height,
        role="img" if label else None,
        aria_label=label or None,
        aria_hidden=None if label else "true",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"
