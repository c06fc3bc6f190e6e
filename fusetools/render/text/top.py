"""Intervals of requests, for a terminal."""

from __future__ import annotations

import time

from fusetools.printable import printable
from fusetools.render.text.figures import duration, number, plural
from fusetools.render.text.layout import table
from fusetools.results.top import Row, Top, UnderWay

_WORDS = {"requests": "op/s", "bytes": "kB/s", "waited": "wait", "under_way": "now"}


def render(top: Top) -> str:
    """The whole interval: sums, requests under way for long, rows."""
    return "".join(line + "\n" for line in lines(top))


def lines(top: Top) -> list[str]:
    found = [summary(top), cost(top)]
    if top.lost or top.left_out:
        found.append(dropped(top))
    found += _missing(top)
    if top.oldest:
        found += ["", *table(_oldest(top), "><<<<", "  ")]
    found += ["", *table(_rows(top), ">" * 12 + "<")]
    if top.groups > len(top.rows):
        found.append(f"and {number(top.groups - len(top.rows))} more rows")
    return found


def line(top: Top) -> str:
    """The interval in one line."""
    more = f", {dropped(top)}" if top.lost or top.left_out else ""
    old = f", the oldest for {duration(top.oldest[0].age_ns)}" if top.oldest else ""
    return f"{time.strftime('%H:%M:%S')} {summary(top)}{old}{more}\n"


def summary(top: Top) -> str:
    total = top.total
    figures = [f"{number(total.per_second)} op/s"]
    if total.requests:
        figures.append(
            f"exec {duration(total.exec_ns)}, p50 {duration(total.p50_ns)}, "
            f"p99 {duration(total.p99_ns)}, max {duration(total.max_ns)}"
        )
    if total.bytes:
        figures.append(f"{number(total.bytes / 1e3 / top.seconds)} kB/s")
    figures.append(f"{number(top.under_way)} under way")
    figures.append(plural(total.errors, "error"))
    return ", ".join(figures)


def cost(top: Top) -> str:
    """What it takes to observe."""
    probes = ""
    if top.pair_cost_ns is not None:
        probes = f"; {duration(top.pair_cost_ns)} for the probes of each callback"
    return (
        f"observing takes {100 * (top.perf_cpu + top.own_cpu):.1f} % of a CPU "
        f"(perf {100 * top.perf_cpu:.1f}, fusetools {100 * top.own_cpu:.1f}){probes}"
    )


def dropped(top: Top) -> str:
    parts = [f"{plural(top.lost, 'event')} lost: the figures are too low"] if top.lost else []
    if top.left_out:
        parts.append(f"{plural(top.left_out, 'request')} left out: too many in one interval")
    return "; ".join(parts)


def _missing(top: Top) -> list[str]:
    wanted = [one for one in top.unavailable if one.layer in ("daemon", "request")]
    return [f"missing: {printable(f'{one.what}: {one.why}')}" for one in wanted[:3]]


def _oldest(top: Top) -> list[tuple[str, ...]]:
    rows = [("under way for", "operation", "caller", "daemon", "path")]
    for one in top.oldest:
        rows.append(
            (
                duration(one.age_ns) + (" ?" if one.unsure else ""),
                one.operation,
                _caller(one),
                "-" if one.thread is None else f"thread {one.thread}",
                one.path or one.mount,
            )
        )
    return rows


def _caller(one: UnderWay) -> str:
    return f"{one.comm or '?'} ({one.pid})" if one.pid is not None else "-"


def _rows(top: Top) -> list[tuple[str, ...]]:
    name = {"cgroup": "cgroup (job)", "thread": "daemon thread"}.get(top.by, top.by)
    heads = ("op/s", "kB/s", "kB/op", "queue", "RTT", "exec", "p50", "p99", "max", "wait", "now")
    rows = [(*(_mark(top, head) for head in heads), _mark(top, "errors", "err"), name)]
    for row in top.rows:
        per_op = row.bytes / row.transfers / 1e3 if row.transfers else None
        rows.append(
            (
                number(row.per_second),
                number(row.bytes / 1e3 / top.seconds) if row.bytes else "-",
                number(per_op),
                duration(row.queue_ns),
                duration(row.rtt_ns),
                duration(row.exec_ns),
                duration(row.p50_ns if row.requests else None),
                duration(row.p99_ns if row.requests else None),
                duration(row.max_ns if row.requests else None),
                f"{row.waited / top.seconds:.2f}",
                "-" if row.under_way is None else number(row.under_way),
                number(row.errors),
                _label(top, row),
            )
        )
    return rows


def _mark(top: Top, head: str, shown: str = "") -> str:
    """The head of the column that rows are sorted by has a mark."""
    return (shown or head) + ("*" if _WORDS.get(top.sort, top.sort) == head else "")


def _label(top: Top, row: Row) -> str:
    label = printable(row.label) or "?"
    if top.by in ("process", "thread"):
        who = "?" if row.id is None else str(row.id)
        return f"{label} ({who})" + (f" {printable(row.mount)}" if row.mount else "")
    return label
