"""fusetools diff as text."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools.figures import duration, number, percent
from fusetools.names import LAYERS
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing
from fusetools.render.text.layout import Whole, lines, prose, table
from fusetools.results.diff import Difference, Differences
from fusetools.results.facts import unlike

SIGNS = ("", "!", "!!", "!!!")


_COLOURS = (None, None, "magenta", "red")  # readable on light and on dark terminals


def render(
    result: Differences,
    thresholds: tuple[float, float] = (100, 500),
    names: tuple[str, str] | None = None,
) -> str:
    """Return calls and latency side by side, marked by the absolute change in calls.

    Marks are ``!`` up to the first threshold, ``!!`` and magenta up to the second, ``!!!`` and red
    above. click.echo removes the colours if stdout is not a terminal. ``names``: paths
    of A and B; None: their files' names.
    """
    import click

    output = [*conclusion(result)]
    a, b = names or (result.a.name, result.b.name)
    for side, name, facts in (("A", a, result.a), ("B", b, result.b)):
        output += [f"{side}: {printable(name)}, {line}" for line in footer(facts)]
    for note in unlike((("A", result.a), ("B", result.b))):
        output += prose(printable(f"note: {note}"), rest="  ")
    output.append("")
    if not result.differences:
        output += ["no calls in either", ""]
    for layer in LAYERS:
        of_layer = [d for d in result.differences if d.layer == layer]
        if not of_layer:
            continue
        rows: list[Sequence[str]] = [
            (layer.upper(), "A", "B", "change", "%", "", "p50 A", "p50 B", "%")
        ]
        for d in of_layer:
            name = f"{d.function} ({d.operation})" if layer == "syscall" else d.function
            rows.append(
                (
                    name,
                    number(d.a.count),
                    number(d.b.count),
                    change(d),
                    percent(d.percent) if d.change else "",
                    SIGNS[level(d, thresholds)],
                    duration(d.a.percentiles_ns.get("50")),
                    duration(d.b.percentiles_ns.get("50")),
                    percent(d.slower_percent("50")),
                )
            )
        first, *others = table(rows, "<>>>><>>>")
        output.append(first)
        for line, d in zip(others, of_layer):
            colour = _COLOURS[level(d, thresholds)]
            output.append(Whole(click.style(line, fg=colour)) if colour else line)
        output.append("")
    calls = "calls" + (f" per {result.per}" if result.per else "")
    low, high = (number(t) for t in thresholds)
    output.append(f"change in {calls}: ! up to {low}, !! up to {high}, !!! above")
    output += missing({**dict.fromkeys(result.a.missing), **dict.fromkeys(result.b.missing)})
    return lines(output)


def conclusion(result: Differences) -> list[str]:
    """Return the verdict in words."""
    if result.verdict is None:
        return []
    return [*prose(printable(result.verdict.text), rest="  "), ""]


def level(d: Difference, thresholds: tuple[float, float]) -> int:
    """Return the index of the mark: 0 without a change, up to 3."""
    change = d.change if d.change is not None else (d.a.count or d.b.count or 0)
    if not change:
        return 0
    return 1 + sum(abs(change) > threshold for threshold in thresholds)


def change(d: Difference) -> str:
    """Return the change in calls, or the only side that recorded the function."""
    if d.change is None:
        return "only B" if d.a.count is None else "only A"
    return number(d.change, "+") if d.change else ""
