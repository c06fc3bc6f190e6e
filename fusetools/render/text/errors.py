"""fusetools errors as text."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools.figures import number, share
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing
from fusetools.render.text.layout import lines, table, wrapped
from fusetools.render.text.words import REASONS
from fusetools.results.errors import Answered, Errors, OperationErrors


def render(result: Errors) -> str:
    rows: list[Sequence[str] | str] = [("OPERATION", "REQUESTS", "ANSWERED", "COUNT", "SHARE")]
    plain: list[str] = []
    for o in result.operations:
        counts = list(o.errors)
        counts += [Answered(REASONS[fate], n) for fate, n in o.unanswered]
        if o.negative:
            counts = sorted([*counts, Answered("no such file", o.negative)], key=lambda e: -e[1])
        if not counts:
            plain.append(f"{o.operation} {number(o.requests)}")
        for i, (name, n) in enumerate(counts):
            every = o.requests + sum(n for _, n in o.unanswered)
            first = (o.operation, number(every)) if i == 0 else ("", "")
            rows.append((*first, name, number(n), share(n, every)))
    output = table(rows, "<><>>") if len(rows) > 1 else []
    if plain:
        output += [""] * bool(output) + wrapped([f"without an error: {plain[0]}", *plain[1:]], "")
    for o in result.operations:
        if o.operation == "lookup" and o.requests:
            output += ["", *lookups(o)]
    if not result.operations:
        output = ["no requests"]
    if result.disconnected:
        calls = [f"{printable(name)} {number(n)}" for name, n in result.disconnected]
        text = "system calls that failed with ENOTCONN, as their mount had no daemon any more"
        output += ["", *wrapped([f"{text}: {calls[0]}", *calls[1:]], "")]
    return lines([*output, "", *footer(result.facts), *missing(result.facts.missing, ("request",))])


def lookups(o: OperationErrors) -> list[str]:
    """Return the number of negative lookups."""
    of_all = f"{number(o.absent)} of {number(o.requests)} ({share(o.absent, o.requests)})"
    if o.negative is None:
        return [
            "negative lookups: not known: this recording lacks lookup replies;",
            f"  answered with ENOENT: {of_all}",
        ]
    return [f"negative lookups: {of_all}"]
