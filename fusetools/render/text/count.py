"""fusetools count as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fusetools.figures import duration, number, took
from fusetools.render.text.errors import interrupts
from fusetools.render.text.footer import footer, missing, never_called, nothing, warnings
from fusetools.render.text.layout import lines, prose, table
from fusetools.results.count import Counts


def render(result: Counts) -> str:
    output = _calls(result)
    notes = interrupts(result.interrupts)
    output += [""] * bool(notes) + [line for note in notes for line in prose(note, rest="  ")]
    output += ["", *footer(result.facts, result.unmatched), *missing(result.facts.missing)]
    return lines(output)


def render_live(result: Counts) -> str:
    """Return the output of `fusetools count --live`: the counts, and the overhead of counting."""
    output = [*_calls(result), "", f"{took(result.facts.seconds)}, counted in the kernel"]
    cost, calls = (
        result.facts.probe_cost_ns,
        sum(c.count for c in result.counts if c.layer == "daemon"),
    )
    if cost is not None and result.facts.seconds:
        whole = cost * calls
        share = whole / result.facts.seconds / 1e7
        output.append(
            f"overhead: {duration(cost)} in each daemon call, {duration(whole)} in all "
            f"({share:.2g} % of one CPU's time); less per request"
        )
    output += warnings(result.facts.losses.warnings)
    return lines(output + missing(result.facts.missing))


def _calls(result: Counts) -> list[str]:
    called = [c for c in result.counts if c.count]
    rows: list[Sequence[str]] = [("ADDR", "FUNC", "LAYER", "COUNT")]
    rows_of = Counter((c.layer, c.function) for c in called)
    for c in called:
        address = "" if c.address is None else f"{c.address:x}"
        # System calls count by the operation that they requested, replies by the answered one.
        of_several = c.layer == "syscall" or rows_of[c.layer, c.function] > 1
        function = f"{c.function} ({c.operation})" if of_several and c.operation else c.function
        rows.append((address, function, c.layer, number(c.count)))
    if not any(c.address for c in called):
        output = table((row[1:] for row in rows), "<<>")
    else:
        output = table(rows, "><<>")
    if not called:
        output = nothing(result.facts, "no calls")
    # One function may serve several operations, and several daemons may have one of this name.
    served = {(c.layer, c.function) for c in called}
    never = {c.function for c in result.counts if (c.layer, c.function) not in served}
    return output + never_called(never)
