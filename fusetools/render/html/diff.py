"""Report section: calls of two recordings side by side."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools.figures import duration, number, percent
from fusetools.names import LAYERS
from fusetools.render.html.markup import Markup, join, table, tag
from fusetools.render.text.diff import change
from fusetools.results.diff import Differences


def render(result: Differences, sides: Sequence[str]) -> Markup:
    tables = []
    for layer in LAYERS:
        rows = [
            (
                f"{d.function} ({d.operation})" if layer == "syscall" else d.function,
                number(d.a.count),
                number(d.b.count),
                change(d),
                percent(d.percent) if d.change else "",
                duration(d.a.percentiles_ns.get("50")),
                duration(d.b.percentiles_ns.get("50")),
                percent(d.slower_percent("50")),
            )
            for d in result.differences
            if d.layer == layer
        ]
        if rows:
            heading = (layer, "A", "B", "change", "%", "p50 A", "p50 B", "%")
            tables.append(table(heading, rows, "<>>>>>>>"))
    names = f"A: {sides[0]}, B: {sides[1]}; the change is B less A."
    return join(tag("p", names), tables or tag("p", "No calls in either."))
