"""Text for a terminal, 80 columns wide where names allow."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from fusetools.missing import Missing
from fusetools.model import (
    LAYERS,
    PERCENTILES,
    READ_TO_REPLY,
    Counts,
    Difference,
    Differences,
    Facts,
    Graph,
    GraphCall,
    GraphCalls,
    GraphNode,
    Histogram,
    Histograms,
)

WIDTH = 80  # of a terminal, in columns
BAR = 40
UNITS = ("ns", "us", "ms")
_SIZES = (("us", 1e3), ("ms", 1e6), ("s", 1e9))


# Words and figures


def printable(text: str) -> str:
    r"""``text`` with everything that could steer a terminal written as an escape, e.g. ``\x1b``.

    Names of functions, tasks and mounts come out of a recording and are not to be trusted:
    control and format characters (also those that turn the writing direction), line ends,
    surrogates and unassigned code points never reach the terminal raw.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c == " " or unicodedata.category(c)[0] not in "CZ" else ascii(c)[1:-1] for c in text
    )


def duration(ns: float | None, unit: str = "") -> str:
    """Nanoseconds with their unit: in three digits, the unit chosen to fit, or all in ``unit``."""
    if ns is None:
        return "-"
    if unit == "ns":
        return f"{ns:,.0f} ns"
    if unit:
        return f"{ns / dict(_SIZES)[unit]:,.3f} {unit}"
    if abs(ns) < 999.5:
        return f"{ns:.0f} ns"
    name, size = next((s for s in _SIZES if abs(ns / s[1]) < 999.5), _SIZES[-1])
    value = ns / size
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{digits}f} {name}"


def took(seconds: float) -> str:
    """A recording's length: "3.2 s", of a short one "38.1 ms"."""
    return f"{seconds:,.1f} s" if seconds >= 0.1 else duration(1e9 * seconds)


def number(value: float | None, sign: str = "") -> str:
    """A count with thousands separators; rates get three digits."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 99.95 or not value:
        return f"{value:{sign},.0f}"
    return f"{value:{sign},.{1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3}f}"


def plural(n: int, word: str) -> str:
    return f"{number(n)} {word}{'' if n == 1 else 's'}"


def bar(n: int, most: int, width: int = BAR) -> str:
    """A bar of eighths of a column; any n > 0 shows."""
    eighths = max(round(8 * width * n / most), 1) if n else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def table(rows: Iterable[Sequence[str] | str], align: str, indent: str = "") -> list[str]:
    """Aligned columns, two spaces apart; ``align`` has "<" or ">" for each column.

    A row that is a str is a line of its own and takes no part in the widths.
    """
    rows = [printable(row) if isinstance(row, str) else [*map(printable, row)] for row in rows]
    columns = zip(*(row for row in rows if not isinstance(row, str)))
    widths = [max(map(len, column)) for column in columns]
    return [
        indent + row
        if isinstance(row, str)
        else (indent + "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, align, widths))).rstrip()
        for row in rows
    ]


def lines(text: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in text)


# What every command says of its recording


def footer(facts: Facts, calls: int | None = None) -> list[str]:
    """What is not in the figures: unmatched (``calls`` of them), lost, warnings."""
    r, losses = facts.requests, facts.losses
    parts = []
    if r.begun or r.ended:
        without = f", {number(r.unanswered)} without an answer" if r.unanswered else ""
        parts.append(f"{plural(r.begun, 'request')}, {number(r.matched)} matched{without}")
    if calls is not None:
        parts.append(f"{plural(calls, 'call')} unmatched" if calls else "no call unmatched")
    parts.append(f"{plural(losses.lost, 'event')} LOST" if losses.lost else "no event lost")
    said = [f"{took(facts.seconds)}: " + "; ".join(parts)]
    if losses.throttled:
        said.append(f"warning: the kernel throttled the events {plural(losses.throttled, 'time')}")
    said += throttled(facts)
    return said + [f"warning: {printable(warning)}" for warning in losses.warnings]


def throttled(facts: Facts) -> list[str]:
    """Whom a cgroup's quota kept from its CPUs."""
    return [
        f"the {printable(t.whose)} was throttled {plural(t.times, 'time')}, "
        f"{duration(t.ns)} in all, by the CPU quota of {printable(t.cgroup)}"
        for t in facts.throttled
    ]


def at_least(ns: float | None, unit: str, least: int | None) -> str:
    """A duration; of one from ``least`` ns on, ">": it did not end."""
    over = ns is not None and least is not None and ns >= least
    return (">" if over else "") + duration(ns, unit)


def missing(all_missing: Iterable[Missing]) -> list[str]:
    """The layers that were not recorded, and what would bring them."""
    said = []
    for m in all_missing:
        if m.layer in LAYERS:
            said.append(f"not recorded: {printable(m.what)} ({printable(m.why)})")
            said += ways_out(m.mend, "  ")
    return said


def ways_out(mend: str, indent: str) -> list[str]:
    labels = ["try", *["or"] * mend.count("\n")]
    return [
        f"{indent}{label:>3}: {printable(way)}" for label, way in zip(labels, mend.splitlines())
    ]


def cost(facts: Facts, layers: Iterable[str]) -> list[str]:
    """What the probes add to the daemon's figures."""
    if "daemon" not in layers:
        return []
    if facts.probe_cost is None:
        return ["each daemon call holds the probes' cost, which was not measured here"]
    return [
        f"each daemon call holds about {duration(facts.probe_cost)} of probe cost, "
        "measured in this recording"
    ]


# hist


def histograms(
    result: Histograms,
    unit: str = "",
    bars: bool = True,
    layers: Sequence[str] = (),
    overhead: bool = False,
) -> str:
    """The summary per operation over layers, then, if ``bars``, a histogram of each.

    ``layers``: those that were asked for; all if empty. ``overhead``: with the part of each
    daemon call's duration that is the probes'.
    """
    # That an operation was not called is an answer to who asks for it; in the summary it is noise.
    called = [h for h in result.histograms if h.count or bars]
    known = overhead and result.facts.probe_cost is not None
    said = summary(replace(result, histograms=tuple(called)), unit, bars, layers, known)
    said += never_called(h.function for h in result.histograms if not h.count and not bars)
    if bars:
        for h in result.histograms:
            if h.count:
                probes = result.facts.probe_cost if overhead and h.layer == "daemon" else None
                said += ["", *distribution(h, unit, probes)]
    # A read and a write need no probe.
    shown = {h.layer for h in result.histograms if h.count and h.function != READ_TO_REPLY}
    said += ["", *cost(result.facts, shown)]
    if known and shown - {"daemon"}:
        said.append("what the probes add to other layers was not measured: fusetools overhead")
    said += footer(result.facts, result.unmatched)
    in_place = bars and result.histograms
    said += missing(m for m in result.facts.missing if not (in_place and _in_place(m, result)))
    return lines(said)


def summary(
    result: Histograms,
    unit: str = "",
    in_place: bool = False,
    layers: Sequence[str] = (),
    overhead: bool = False,
) -> list[str]:
    """A line per function, under its operation; ``in_place``: also for the layers not recorded;
    ``overhead``: the probes' part of the mean."""
    heading = ("", "calls", "p50", "p90", "p99", "max", *(["tracer"] if overhead else []))
    rows: list[Sequence[str] | str] = []
    for operation, group in groupby(result.histograms, lambda h: h.operation):
        of_operation = list(group)
        rows.append((operation or "other", *(("",) * len(heading) if rows else heading)))
        for layer in LAYERS:
            for h in of_operation:
                if h.layer == layer:
                    tracer = [_tracer(h, result.facts)] if overhead else []
                    until = h.until_reply or h
                    rows.append((f"  {layer:7}", h.function, *_figures(until, unit), *tracer))
                    if h.after_reply:
                        tracer = [""] * overhead
                        rows.append(("", "  after reply", *_figures(h.after_reply, unit), *tracer))
            for m in result.facts.missing:
                if not (in_place and m.layer == layer and _in_place(m, result)):
                    continue
                if not layers or layer in layers:
                    of = m.what[len(layer) + 1 :] + " " if m.what.startswith(f"{layer} of") else ""
                    rows.append(f"  {layer:7}  {of}not recorded: {m.why}")
                    rows += ways_out(m.mend, " " * 11)
    return table(rows, "<<>>>>>>"[: len(heading) + 1]) if rows else ["no calls"]


def _in_place(m: Missing, result: Histograms) -> bool:
    """Where the figures would stand that there are none of: of a whole layer, or of a daemon."""
    seen = {h.layer for h in result.histograms if h.count}
    return m.layer in LAYERS and (m.layer not in seen or m.what.startswith(f"{m.layer} of "))


def _figures(h: Histogram, unit: str) -> list[str]:
    if not h.count:
        return ["0", "", "", "", ""]
    times = [h.percentiles.get(p) for p in ("50", "90", "99")]
    return [number(h.count), *(at_least(t, unit, h.least) for t in (*times, h.max))]


def _tracer(h: Histogram, facts: Facts) -> str:
    """The probes' part of a daemon call's mean duration."""
    if h.layer != "daemon" or not h.mean or facts.probe_cost is None:
        return ""
    return f"{min(100 * facts.probe_cost / h.mean, 100):.1f} %"


def distribution(h: Histogram, unit: str = "", probes: int | None = None) -> list[str]:
    """One histogram: its figures, then a line per log2 bucket; ``probes``: what of each duration
    is theirs, ns, to be shown as a part of the bin."""
    said = [f"{h.layer}  {printable(h.function)}"]
    named = h.layer not in ("syscall", "kernel") or h.operation in h.function
    if h.operation and not named:
        said[0] += f", with a {printable(h.operation)} in it"
    mean = (">" if h.unanswered else "") + duration(h.mean, unit)
    figures = (
        ("min", at_least(h.min, unit, h.least)),
        ("mean", mean),
        ("max", at_least(h.max, unit, h.least)),
    )
    said.append(
        f"  {plural(h.count, 'call')}, {number(h.unmatched)} unmatched   "
        + "   ".join(f"{name} {figure}" for name, figure in figures)
    )
    said.append(
        "  "
        + "   ".join(
            f"p{p} {at_least(h.percentiles[p], unit, h.least)}"
            for p in PERCENTILES
            if p in h.percentiles
        )
    )
    if h.unanswered:
        said.append(
            f"  {number(h.unanswered)} of them without an end: their time until then, "
            "so > is at least"
        )
    if h.until_reply and h.after_reply:
        for part, name in ((h.until_reply, "until the reply"), (h.after_reply, "after the reply")):
            times = "   ".join(
                f"p{p} {at_least(part.percentiles.get(p), unit, part.least)}" for p in ("50", "99")
            )
            said.append(f"  {name}:   {times}   max {duration(part.max, unit)}")
    if h.self_time is not None and h.total:
        said.append(
            f"  total {duration(h.total, unit)}   of which itself {duration(h.self_time, unit)} "
            f"({100 * h.self_time / h.total:.1f} %)"
        )
    most = max((n for _, _, n in h.buckets), default=0)
    rows: list[Sequence[str]] = [("from", "to", "count", "")]
    rows += [
        (duration(low, unit), duration(high + 1, unit), number(n), bar(n, most))
        for low, high, n in h.buckets
    ]
    if probes is not None:
        rows = [(*row[:3], part, row[3]) for row, part in zip(rows, _parts(h, probes))]
    return said + table(rows, ">>><" if probes is None else ">>>><", indent="  ")


def _parts(h: Histogram, probes: int) -> Iterator[str]:
    """The heading, and of each bin the probes' part of its longest and its shortest duration."""
    yield "tracer"
    for low, high, n in h.buckets:
        least, most = (min(100 * probes / max(ns, 1), 100) for ns in (high, low))
        digits = 1 if most < 9.95 else 0
        part = f"{least:.{digits}f}-{most:.{digits}f} %" if most >= 0.1 else "< 0.1 %"
        yield part if n else ""


# count


def counts(result: Counts) -> str:
    said = _calls(result)
    said += ["", *footer(result.facts, result.unmatched), *missing(result.facts.missing)]
    return lines(said)


def live(result: Counts) -> str:
    """Counts that no recording was made for, and what counting cost."""
    said = [*_calls(result), "", f"{took(result.facts.seconds)}, counted in the kernel"]
    cost, calls = (
        result.facts.probe_cost,
        sum(c.count for c in result.counts if c.layer == "daemon"),
    )
    if cost is not None and result.facts.seconds:
        whole = cost * calls
        share = whole / result.facts.seconds / 1e7
        said.append(
            f"overhead: {duration(cost)} in each daemon call, {duration(whole)} in all "
            f"({share:.2g} % of one CPU's time); in a request less"
        )
    said += [f"warning: {printable(warning)}" for warning in result.facts.losses.warnings]
    return lines(said + missing(result.facts.missing))


def _calls(result: Counts) -> list[str]:
    called = [c for c in result.counts if c.count]
    rows: list[Sequence[str]] = [("ADDR", "FUNC", "LAYER", "COUNT")]
    for c in called:
        address = "" if c.address is None else f"{c.address:x}"
        # A system call is counted by the request that it made.
        function = f"{c.function} ({c.operation})" if c.layer == "syscall" else c.function
        rows.append((address, function, c.layer, number(c.count)))
    if not any(c.address for c in called):
        said = table((row[1:] for row in rows), "<<>")
    else:
        said = table(rows, "><<>")
    if not called:
        said = ["no calls"]
    return said + never_called(c.function for c in result.counts if not c.count)


def never_called(functions: Iterable[str]) -> list[str]:
    names = ", ".join(sorted(map(printable, functions)))
    said = f"never called: {names}"
    return ["", *textwrap.wrap(said, WIDTH, subsequent_indent="  ")] if names else []


# graph


def graph(result: Graph, unit: str = "") -> str:
    rows: list[Sequence[str]] = [("FUNCTION", "CALLS", "TOTAL", "SELF", "SHARE")]
    for root in result.roots:
        # The share is that of the outermost function: what waits for work would hide all else.
        rows += _nodes(root, 0, root.total, unit)
    said = table(rows, "<>>>>") if len(rows) > 1 else ["no calls"]
    return lines([*said, "", *footer(result.facts, result.unmatched)])


def _nodes(node: GraphNode, level: int, whole: int, unit: str) -> Iterator[Sequence[str]]:
    share = f"{100 * node.total / whole:.1f} %" if whole else ""
    times = (duration(node.total, unit), duration(node.self_time, unit))
    yield ("  " * level + node.function, number(node.calls), *times, share)
    for child in node.children:
        yield from _nodes(child, level + 1, whole, unit)


def graph_calls(result: GraphCalls, unit: str = "") -> Iterator[str]:
    """In parts, a tree each: when a call began, since the outermost one, and how long it took."""
    any_call = False
    for root in result.calls:
        any_call = True
        rows = list(_call(root, root.start, 0, unit))
        task = f"{printable(root.comm) or 'task'} {root.tid}"
        heading = f"{(root.start - result.first) / 1e9:.9f} s  {task}"
        yield lines([f"{heading}, CPU {root.cpu}", *table(rows, ">><", "  "), ""])
    yield lines([*([] if any_call else ["no calls", ""]), *footer(result.facts, result.unmatched)])


def _call(call: GraphCall, begin: int, level: int, unit: str) -> Iterator[Sequence[str]]:
    took = "unfinished" if call.duration is None else duration(call.duration, unit)
    yield (f"+{duration(call.start - begin, unit)}", took, "  " * level + call.function)
    for child in call.children:
        yield from _call(child, begin, level + 1, unit)


# diff


MARKS = ("", "!", "!!", "!!!")
_COLOURS = (None, "green", "blue", "yellow")


def differences(result: Differences, thresholds: tuple[float, float] = (100, 500)) -> str:
    """Calls and latency side by side; marked and coloured by the absolute change in calls.

    Up to the first threshold ``!`` and green, up to the second ``!!`` and blue, above ``!!!`` and
    yellow. Colours are ANSI sequences: click.echo drops them where there is no terminal.
    """
    import click

    said = []
    for side, facts in (("A", result.a), ("B", result.b)):
        name = printable(facts.name)
        said += [f"{side}: {name}, {line}" for line in footer(facts)]
    said.append("")
    if not result.differences:
        said += ["no calls in either", ""]
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
                    number(d.change, "+") if d.change else _only(d),
                    percent(d.percent) if d.change else "",
                    MARKS[level(d, thresholds)],
                    duration(d.a.percentiles.get("50")),
                    duration(d.b.percentiles.get("50")),
                    percent(d.slower_percent("50")),
                )
            )
        first, *others = table(rows, "<>>>><>>>")
        said.append(first)
        for line, d in zip(others, of_layer):
            colour = _COLOURS[level(d, thresholds)]
            said.append(click.style(line, fg=colour) if colour else line)
        said.append("")
    calls = "calls" + (f" per {result.per}" if result.per else "")
    low, high = (number(t) for t in thresholds)
    said.append(f"change in {calls}: ! up to {low}, !! up to {high}, !!! above")
    said += missing({**dict.fromkeys(result.a.missing), **dict.fromkeys(result.b.missing)})
    return lines(said)


def level(d: Difference, thresholds: tuple[float, float]) -> int:
    change = d.change if d.change is not None else (d.a.count or d.b.count or 0)
    if not change:
        return 0
    return 1 + sum(abs(change) > threshold for threshold in thresholds)


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:+,.{1 if abs(value) < 99.95 else 0}f}"


def _only(d: Difference) -> str:
    if d.change is None:
        return "only B" if d.a.count is None else "only A"
    return ""
