"""Report section: calls."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools.figures import number
from fusetools.render.html.markup import Markup, join, table, tag
from fusetools.results.count import Counts


def render(result: Counts) -> Markup:
    called = [c for c in result.counts if c.count]
    rows = [
        (
            # System calls count by the operation that they requested.
            f"{c.function} ({c.operation})" if c.layer == "syscall" else c.function,
            c.layer,
            number(c.count),
        )
        for c in called
    ]
    return join(
        table(("function", "layer", "calls"), rows, "<<>") if rows else tag("p", "No calls."),
        never_called([c.function for c in result.counts if not c.count]),
    )


def never_called(functions: Sequence[str]) -> Markup:
    if not functions:
        return join()
    return tag("p", f"Never called: {', '.join(sorted(functions))}.", class_="note")
