"""Report section: latency histograms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from fusetools.figures import duration, number, plural
from fusetools.render.html.count import never_called
from fusetools.render.html.markup import Markup, join, note, tag, wide
from fusetools.render.html.plots import Panel, histograms
from fusetools.render.html.stages import sentence
from fusetools.render.text import hist as hist_text
from fusetools.results.hist import Histogram, Histograms

# Minimum number of calls for a histogram.
FEW = 10


def render(result: Histograms) -> Markup:
    called = [h for h in result.histograms if h.count]
    if not called:
        return join(tag("p", "No calls."), never_called([h.function for h in result.histograms]))
    bodies: list[Markup] = []
    heading = ("calls", "p50", "p90", "p99", "max")
    for operation, group in groupby(called, lambda h: h.operation):
        rows = [tag("tr", tag("th", operation or "other", colspan=6, scope="rowgroup"))]
        for h in group:
            rows.append(_row(h.layer, h.function, h.answered))
            if h.after_reply:
                rows.append(_row("", "after reply", h.after_reply))
        bodies.append(tag("tbody", rows))
    names = [tag("th", name, class_="n") for name in heading]
    head = tag("thead", tag("tr", tag("th"), names))
    whole = tag("table", head, bodies, class_="summary")
    return join(
        wide(whole),
        [note(sentence(line)) for line in hist_text.cost(result.facts, {h.layer for h in called})],
        never_called([h.function for h in result.histograms if not h.count]),
        _histograms(called),
    )


def _row(layer: str, name: str, h: Histogram) -> Markup:
    figures = [duration(h.percentiles_ns.get(p)) for p in ("50", "90", "99")]
    numbers = [number(h.count), *figures, duration(h.max_ns)]
    first = tag("td", tag("span", layer, class_="layer"), " ", name)
    return tag("tr", first, [tag("td", n, class_="n") for n in numbers])


def _histograms(called: Sequence[Histogram]) -> Markup:
    """Return histograms by operation, layer by layer on a common time axis."""
    cards = []
    for operation, group in groupby(called, lambda h: h.operation):
        shown = [h.answered for h in group if operation and h.count >= FEW]
        if not shown:
            continue
        panels = [
            Panel(_heading(h), f"l-{h.layer}", h.buckets, _marks(h.percentiles_ns)) for h in shown
        ]
        cards.append(tag("figure", tag("h4", operation), histograms(panels, operation)))
    if not cards:
        return join()
    return join(
        tag("div", cards, class_="cards"),
        tag(
            "p",
            "Each histogram is as tall as its fullest bin; each bin is twice as wide as the one "
            "before it. The lines are p50 and p99. Callbacks count until their reply. Functions "
            f"with fewer than {FEW} calls, or of no operation, are not drawn.",
            class_="note",
        ),
    )


def _heading(h: Histogram) -> Markup:
    return join(
        tag("span", class_=f"swatch l-{h.layer}"),
        tag("b", h.layer),
        f" {h.function} ",
        tag("span", plural(h.count, "call"), class_="dim"),
    )


def _marks(percentiles: dict[str, int]) -> list[tuple[str, int]]:
    return [(f"p{p}", percentiles[p]) for p in ("50", "99") if p in percentiles]
