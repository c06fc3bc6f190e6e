"""fusetools hist as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from fusetools.figures import at_least, duration, number, plural, share
from fusetools.names import LAYERS
from fusetools.printable import printable
from fusetools.reasons import Reason, of_daemon
from fusetools.render.text.footer import footer, missing, never_called, nothing, ways_out
from fusetools.render.text.layout import BAR, bar, lines, prose, table, width
from fusetools.results.facts import Facts
from fusetools.results.hist import PERCENTILES, READ_TO_REPLY, Histogram, Histograms


def cost(facts: Facts, layers: Iterable[str]) -> list[str]:
    """Return the probes' cost in the daemon's figures."""
    if facts.corrected:
        return ["kernel functions are as recorded, not corrected"] if "kernel" in layers else []
    if "daemon" not in layers:
        return []
    if facts.probe_cost_ns is None:
        return ["each daemon call includes the probes' cost, which was not measured"]
    cost = duration(facts.probe_cost_ns)
    return [f"each daemon call includes about {cost} of probe cost, measured here"]


def render(
    result: Histograms,
    unit: str = "",
    bars: bool = True,
    layers: Sequence[str] = (),
    overhead: bool = False,
) -> str:
    """Return a summary by operation and layer, then, if ``bars``, a histogram of each function.

    ``layers``: the requested layers; none: all. ``overhead``: with the probes' part of each daemon
    call's duration.
    """
    untimed = [h for h in result.histograms if not h.count and h.unmatched]
    never = [h for h in result.histograms if not h.count and not h.unmatched]
    # With bars, the user selected an operation, and 0 calls are a valid answer.
    called = [h for h in result.histograms if h.count or (bars and h in never)]
    known = overhead and result.facts.probe_cost_ns is not None
    output = summary(replace(result, histograms=tuple(called)), unit, bars, layers, known)
    if called and result.facts.removed and not any(h.count for h in result.histograms):
        output += ["", *nothing(result.facts, "no calls")]
    if untimed:
        calls = Counter[str]()
        for h in untimed:
            calls[h.function] += h.unmatched
        names = ", ".join(f"{printable(name)} ({number(n)})" for name, n in calls.most_common())
        output += ["", *prose(f"called, but without durations: {names}", rest="  ")]
    output += never_called(h.function for h in never if not bars)
    if bars:
        for h in result.histograms:
            if h.count:
                probes = result.facts.probe_cost_ns if overhead and h.layer == "daemon" else None
                output += ["", *distribution(h, unit, probes)]
    # The window from read to reply has no probes.
    shown = {h.layer for h in result.histograms if h.count and h.function != READ_TO_REPLY}
    output += ["", *cost(result.facts, shown)]
    if known and shown - {"daemon"} and result.facts.took is None:
        output.append("what the probes add to other layers was not measured: fusetools overhead")
    output += footer(result.facts, result.unmatched)
    in_place = bars and result.histograms
    output += missing(m for m in result.facts.missing if not (in_place and _in_place(m, result)))
    return lines(output)


def summary(
    result: Histograms,
    unit: str = "",
    in_place: bool = False,
    layers: Sequence[str] = (),
    overhead: bool = False,
) -> list[str]:
    """Return a line per function, under its operation.

    ``in_place``: also lines for layers not recorded; ``overhead``: with the probes' part of the
    mean."""
    heading = ("", "calls", "p50", "p90", "p99", "max", *(["tracer"] if overhead else []))
    rows: list[Sequence[str] | str] = []
    for operation, group in groupby(result.histograms, lambda h: h.operation):
        of_operation = list(group)
        rows.append((operation or "other", *(("",) * len(heading) if rows else heading)))
        for layer in LAYERS:
            for h in of_operation:
                if h.layer == layer:
                    tracer = [_tracer(h, result.facts)] if overhead else []
                    figures = _figures(h.answered, unit)
                    rows.append((f"  {layer:7}", h.function, *figures, *tracer))
                    if h.after_reply:
                        tracer = [""] * overhead
                        rows.append(("", "  after reply", *_figures(h.after_reply, unit), *tracer))
            for m in result.facts.missing:
                if not (in_place and m.layer == layer and _in_place(m, result)):
                    continue
                if not layers or layer in layers:
                    of = f"of {m.named('path')} " if of_daemon(m) else ""
                    why = printable(f"{of}not recorded: {m.why}")
                    rows += prose(why, f"  {layer:7}  ", " " * 11)
                    rows += ways_out(m.fix, " " * 11)
    return (
        table(rows, "<<>>>>>>"[: len(heading) + 1]) if rows else nothing(result.facts, "no calls")
    )


def _in_place(m: Reason, result: Histograms) -> bool:
    """Return whether ``m`` appears in place of its figures: it concerns a whole layer, or a
    daemon."""
    seen = {h.layer for h in result.histograms if h.count}
    return m.layer in LAYERS and (m.layer not in seen or of_daemon(m))


def _figures(h: Histogram, unit: str) -> list[str]:
    if not h.count:
        return ["0", "", "", "", ""]
    times = [h.percentiles_ns.get(p) for p in ("50", "90", "99")]
    return [number(h.count), *(at_least(t, unit, h.least_ns) for t in (*times, h.max_ns))]


def _tracer(h: Histogram, facts: Facts) -> str:
    """Return the probes' part of a daemon call's mean duration."""
    if h.layer != "daemon" or not h.mean_ns or facts.probe_cost_ns is None:
        return ""
    return share(min(facts.probe_cost_ns, h.mean_ns), h.mean_ns)


def distribution(h: Histogram, unit: str = "", probes: int | None = None) -> list[str]:
    """Return one histogram: its figures, then a line per log2 bucket.

    ``probes``: the probes' part of each duration in ns, shown in per cent of the bucket's times."""
    output = [f"{h.layer}  {printable(h.function)}"]
    named = h.layer not in ("syscall", "kernel") or h.operation in h.function
    if h.operation and not named:
        output[0] += f" (issuing {printable(h.operation)})"
    mean = (">" if h.unanswered else "") + duration(h.mean_ns, unit)
    figures = (
        ("min", at_least(h.min_ns, unit, h.least_ns)),
        ("mean", mean),
        ("max", at_least(h.max_ns, unit, h.least_ns)),
    )
    output += _row(
        f"{plural(h.count, 'call')}, {number(h.unmatched)} unmatched",
        *(f"{name} {figure}" for name, figure in figures),
    )
    known = [p for p in PERCENTILES if p in h.percentiles_ns]
    output += _row(*(f"p{p} {at_least(h.percentiles_ns[p], unit, h.least_ns)}" for p in known))
    if h.unanswered:
        output.append(
            f"  {number(h.unanswered)} without an end, counted until then (> means at least)"
        )
    if h.until_reply and h.after_reply:
        for part, name in ((h.until_reply, "until the reply"), (h.after_reply, "after the reply")):
            output += _row(
                f"{name}:",
                *(
                    f"p{p} {at_least(part.percentiles_ns.get(p), unit, part.least_ns)}"
                    for p in ("50", "99")
                ),
                f"max {duration(part.max_ns, unit)}",
            )
    if h.self_time_ns is not None and h.total_ns:
        own = f"{duration(h.self_time_ns, unit)} ({share(h.self_time_ns, h.total_ns)})"
        output += _row(f"total {duration(h.total_ns, unit)}", f"of which itself {own}")
    most = max((n for _, _, n in h.buckets), default=0)
    rows: list[Sequence[str]] = [("from", "to", "count", "")]
    columns = min(BAR, max(width() - 34, 8))  # what two durations and a count leave
    rows += [
        (duration(low, unit), duration(high + 1, unit), number(n), bar(n, most, columns))
        for low, high, n in h.buckets
    ]
    if probes is not None:
        rows = [(*row[:3], part, row[3]) for row, part in zip(rows, _parts(h, probes))]
    return output + table(rows, ">>><" if probes is None else ">>>><", indent="  ")


def _row(*figures: str) -> list[str]:
    """Return figures side by side."""
    return table([figures], "<" * len(figures), "  ")


def _parts(h: Histogram, probes: int) -> Iterator[str]:
    """Yield a column: its heading, then the probes' part of each bucket's longest and shortest
    duration."""
    yield "tracer"
    for low, high, n in h.buckets:
        least, most = (min(100 * probes / max(ns, 1), 100) for ns in (high, low))
        digits = 1 if most < 9.95 else 0
        part = f"{least:.{digits}f}-{most:.{digits}f} %" if most >= 0.1 else "< 0.1 %"
        yield part if n else ""
