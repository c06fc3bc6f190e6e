"""fusetools compare as text."""

from __future__ import annotations

import string
from collections.abc import Sequence
from fnmatch import fnmatchcase

from fusetools.figures import duration, number, plural
from fusetools.printable import printable
from fusetools.render.text.layout import bar, lines, prose, table, width
from fusetools.results.compare import LEVEL, STRETCHES, TIME, Compared, Figures, Group, Measure

MINOR = 0.05  # the text omits operations with a smaller share of the calls on every side


def render(result: Compared, operations: Sequence[str] = ()) -> str:
    """Return each operation's figures and histograms.

    ``operations``: shell patterns; none: all but rare operations."""
    letters = string.ascii_uppercase
    output = [f"{letter}: {printable(name)}" for letter, name in zip(letters, result.sides)]
    if result.verdict is not None:
        output = [*prose(printable(result.verdict.text), rest="  "), "", *output]
    hidden: dict[str, None] = {}
    for group in result.groups:
        if group.label:
            output += ["", f"--- {printable(group.label)}"]
        measures = shown(group, operations)
        hidden.update(dict.fromkeys(m.name for m in group.measures if m not in measures))
        for measure in measures:
            output += ["", *_figures(measure)]
            output += [*_calls(measure), *_shapes(measure, result.values)]
    if not any(shown(group, operations) for group in result.groups):
        output.append("no calls")
    output.append("")
    if hidden and not operations:
        names = ", ".join(map(printable, hidden))
        output += prose(f"few calls, only with --operation or --json: {names}")
    output += prose(how(result))
    for note in result.notes:
        output += prose(f"note: {printable(note)}", rest="  ")
    return lines(output)


def shown(group: Group, operations: Sequence[str] = ()) -> list[Measure]:
    """Return the measures that match a shell pattern; without patterns, all but rare ones."""
    if operations:
        return [m for m in group.measures if any(fnmatchcase(m.name, p) for p in operations)]
    sides = range(len(group.measures[0].sides)) if group.measures else ()
    whole = [sum(m.sides[i].count for m in group.measures if m.name != TIME) for i in sides]
    return [
        m
        for m in group.measures
        if m.name == TIME or any(m.sides[i].count >= MINOR * whole[i] > 0 for i in sides)
    ]


def _figures(measure: Measure) -> list[str]:
    time = measure.name == TIME
    heading = ("runs", "median", "", "") if time else ("calls", "p50", "p99", "total")
    name = f"{measure.layer} {measure.name}".strip()
    rows: list[Sequence[str]] = [(name, *heading, "x best")]
    rows += [
        (
            f"  {letter}",
            number(round(side.count)),
            duration(side.p50_ns),
            "" if time else duration(side.p99_ns),
            "" if side.total_ns is None else duration(side.total_ns),
            "" if side.times_best is None else f"{side.times_best:.2f}",
        )
        for letter, side in zip(string.ascii_uppercase, measure.sides)
    ]
    if not any(side.total_ns is not None for side in measure.sides):
        rows = [(*row[:4], *row[5:]) for row in rows]
    verdicts = ["", *(verdict(side) for side in measure.sides)]
    align = "<>>>>>"[: len(rows[0])] + "<"
    return table([(*row, words) for row, words in zip(rows, verdicts)], align)


def _calls(measure: Measure) -> list[str]:
    """Return a remark if a side made more calls: they take longer even if equally fast."""
    counts = [side.count for side in measure.sides]
    least, most = min(counts), max(counts)
    if measure.name == TIME or not most or most <= 1.05 * least:
        return []
    letters = string.ascii_uppercase
    first, last = letters[counts.index(most)], letters[counts.index(least)]
    more = f"{most / least:.3g} times as many calls as {last}" if least else f"calls, {last} none"
    return [f"  {first} made {more}"]


def verdict(side: Figures) -> str:
    """Return in words whether the side differs from the best."""
    if side.p50_ns is None or side.times_best is None:
        return ""
    if side.slower is None or side.p is None:
        return "" if side.times_best == 1 else "too few values to test"
    p = "p < 0.001" if side.p < 0.001 else f"p {side.p:.3f}"
    if not side.differs:
        return f"within noise, {p}"
    return f"slower in {100 * side.slower:.0f} % of pairs, {p}"


def _shapes(measure: Measure, values: str) -> list[str]:
    """Return the histograms side by side; each bar is a share of its own side's calls."""
    places = sorted({(low, high) for side in measure.sides for low, high, _ in side.buckets})
    if sum(bool(side.buckets) for side in measure.sides) < 2:
        return []
    first, last = (max(places[i][0].bit_length() - 1, 0) for i in (0, -1))
    places = [(1 << b if b else 0, (2 << b) - 1) for b in range(first, last + 1)]
    counts = [{row[0]: row[2] for row in side.buckets} for side in measure.sides]
    totals = [sum(bins.values()) for bins in counts]
    most = max(n / total for bins, total in zip(counts, totals) for n in bins.values())
    digits = [max((len(number(n)) for n in bins.values()), default=1) for bins in counts]
    columns = max((width() - 22 - sum(digits) - 4 * len(counts)) // len(counts), 3)
    scale = 1 << 30  # factor for shares, as bar() takes whole numbers
    rows: list[Sequence[str]] = [
        (
            "from",
            "to",
            *(c for letter in string.ascii_uppercase[: len(counts)] for c in (letter, "")),
        )
    ]
    for start, end in places:
        row = [duration(start), duration(end + 1)]
        for bins, total in zip(counts, totals):
            n = bins.get(start, 0)
            share = round(scale * n / total) if total else 0
            row += [number(n), bar(share, round(scale * most), columns)]
        rows.append(row)
    title = ["  one run's calls above, those of all runs here:"] if values == "run" else []
    return title + table(rows, ">>" + "><" * len(counts), indent="  ")


def how(result: Compared) -> str:
    """Explain how the differences were tested."""
    if not result.tests:
        return f"no difference was tested: too few {result.values}s"
    what = "runs"
    if result.values == "call":
        what = f"medians of {STRETCHES} stretches of the calls, or of few calls themselves"
    text = (
        f"p: Mann-Whitney U (SciPy) of the {what}; against the best side; adjusted for "
        f"{plural(result.tests, 'test')} (Benjamini-Hochberg); a difference where p <= {LEVEL}."
    )
    if result.values == "run":
        return text
    return f"{text} For run-to-run variation, use fusetools sweep."
