"""Report section: error replies."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools.figures import number, share
from fusetools.render.html.markup import Markup, join, sentence, table, tag
from fusetools.render.text import errors as errors_text
from fusetools.results.errors import Answered, Errors


def render(result: Errors) -> Markup:
    rows: list[Sequence[str]] = []
    for o in result.operations:
        counts = list(o.errors)
        if o.negative:
            counts = sorted([*counts, Answered("no such file", o.negative)], key=lambda e: -e[1])
        for i, (name, n) in enumerate(counts):
            first = (o.operation, number(o.requests)) if i == 0 else ("", "")
            rows.append((*first, name, number(n), share(n, o.requests)))
    plain = [o for o in result.operations if not (o.errors or o.negative)]
    heading = ("operation", "requests", "answered", "count", "share")
    parts = [table(heading, rows, "<><>>")] if rows else []
    if plain:
        names = ", ".join(f"{o.operation} {number(o.requests)}" for o in plain)
        parts.append(tag("p", f"Without an error: {names}."))
    for o in result.operations:
        if o.operation == "lookup":
            parts += [tag("p", line.strip().capitalize()) for line in errors_text.lookups(o)]
    notes = [*errors_text.unanswered(result), *errors_text.contradicted(result)]
    notes += errors_text.interrupts(result.interrupts)
    parts += [tag("p", sentence(note)) for note in notes]
    return join(parts) if parts else tag("p", "No requests.")
