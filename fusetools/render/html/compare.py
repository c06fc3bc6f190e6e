"""Report section: comparison of several recordings or sweeps."""

from __future__ import annotations

import string
from collections.abc import Sequence

from fusetools.errors import Error
from fusetools.figures import duration, number
from fusetools.render.html.markup import Child, Markup, error, join, note, table, tag
from fusetools.render.html.plots import Panel, histograms
from fusetools.render.text import compare as compare_text
from fusetools.results.compare import TIME, Compared, Measure


def render(result: Compared | Error) -> Markup:
    """Return each operation's figures side by side, and its histograms on a common time axis."""
    if isinstance(result, Error):
        return error(result)
    letters = string.ascii_uppercase
    names = [tag("li", tag("b", letter), f" {name}") for letter, name in zip(letters, result.sides)]
    parts = [tag("ul", names, class_="sides")]
    if result.verdict is not None:
        parts.insert(0, tag("p", tag("b", f"{result.verdict.text}.")))
    hidden: dict[str, None] = {}
    for group in result.groups:
        if group.label:
            parts.append(tag("h3", group.label))
        shown = compare_text.shown(group)
        hidden.update(dict.fromkeys(m.name for m in group.measures if m not in shown))
        cards = [_measure(measure) for measure in shown]
        parts.append(tag("div", cards, class_="cards") if cards else tag("p", "No calls."))
    if hidden:
        parts.append(note(f"Few calls, only in fusetools compare: {', '.join(hidden)}."))
    parts.append(note(compare_text.how(result)))
    parts += [note(line) for line in result.notes]
    return join(parts)


def _measure(measure: Measure) -> Markup:
    time = measure.name == TIME
    heading = ["", "runs", "median"] if time else ["", "calls", "p50", "p99"]
    totals = any(side.total_ns is not None for side in measure.sides)
    heading += ["total"] if totals else []
    rows: list[Sequence[Child]] = []
    panels, verdicts = [], []
    for i, (letter, side) in enumerate(zip(string.ascii_uppercase, measure.sides)):
        best = "" if side.times_best is None else f"{side.times_best:.2f}"
        figures = [number(round(side.count)), duration(side.p50_ns)]
        if not time:
            figures.append(duration(side.p99_ns))
        if totals:
            figures.append(duration(side.total_ns))
        rows.append((tag("b", letter), *figures, best))
        verdict = compare_text.verdict(side)
        if verdict:
            verdicts.append(tag("p", tag("b", letter), f": {verdict}", class_="note"))
        if side.buckets:
            marks = [("p50", round(side.p50_ns))] if side.p50_ns is not None else []
            panels.append(Panel(tag("b", letter), f"c{i % COLOURS}", side.buckets, marks))
    return tag(
        "figure",
        tag("h4", measure.name),
        table((*heading, "x best"), rows, "<" + ">" * len(heading)),
        verdicts,
        histograms(panels, measure.name),
    )


COLOURS = 6
