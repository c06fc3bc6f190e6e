"""fusetools top as text: one interval of requests."""

from __future__ import annotations

import time

from fusetools.figures import duration, number, plural, share, took
from fusetools.printable import printable
from fusetools.render.text.layout import cut, limit, prose, table
from fusetools.results.top import Row, Top, UnderWay

HEADS = ("op/s", "kB/s", "kB/op", "queue", "RTT", "exec", "p50", "p99", "max", "wait", "now", "err")
SORTED = {
    "requests": "op/s", "bytes": "kB/s", "waited": "wait", "under_way": "now", "errors": "err",
}  # fmt: skip
NAMES = {"cgroup": "cgroup (job)", "thread": "daemon thread"}
WIDE = 110  # minimum width of a screen for all figures, in columns
OMITTED = ("kB/s", "kB/op", "p50", "max")  # omitted on smaller screens


def render(top: Top) -> str:
    """Return the interval: its sums, the oldest requests in flight, its rows."""
    return "".join(line + "\n" for line in lines(top, limit()))


def lines(top: Top, width: int | None = None) -> list[str]:
    """Return the lines of an interval. ``width``: the screen's in columns; None: unlimited."""
    shown = [summary(top), *verdict(top), cost(top)]
    if top.lost or top.left_out:
        shown.append(dropped(top))
    shown += _missing(top)
    if width is not None:
        shown = [line for text in shown for line in prose(text, "", "  ", width, broken=True)]
    if top.oldest:
        shown += ["", *table(_oldest(top), "><<<<", "  ")]
    idle = f"no request was sent or answered in {took(top.seconds)}"
    shown += ["", *(_rows(top, width) if top.rows else [idle])]
    if top.groups > len(top.rows):
        shown.append(f"and {number(top.groups - len(top.rows))} more rows")
    return [line for row in shown for line in row.split("\n")]


def line(top: Top) -> str:
    """Return the interval in one line."""
    more = f", {dropped(top)}" if top.lost or top.left_out else ""
    old = f", the oldest for {duration(top.oldest[0].age_ns)}" if top.oldest else ""
    return f"{time.strftime('%H:%M:%S')} {summary(top)}{old}{more}\n"


def verdict(top: Top) -> list[str]:
    """Return the row for which callers wait most, if there is one."""
    return [printable(top.verdict.text)] if top.verdict else []


def summary(top: Top) -> str:
    """Return the interval's sums."""
    total = top.overall
    figures = [f"{number(total.per_second)} op/s"]
    if total.requests:
        figures.append(
            f"exec {duration(total.exec_ns)}, p50 {duration(total.p50_ns)}, "
            f"p99 {duration(total.p99_ns)}, max {duration(total.max_ns)}"
        )
    if total.bytes:
        figures.append(f"{number(total.bytes / 1e3 / top.seconds)} kB/s")
    figures.append(f"{number(top.under_way)} in flight")
    if top.before:
        figures.append(f"{number(top.before)} more since before (see fusetools stuck)")
    figures.append(plural(total.errors, "error"))
    return ", ".join(figures)


def cost(top: Top) -> str:
    """Return the overhead of observing."""
    probes = ""
    if top.pair_cost_ns is not None:
        probes = f"; {duration(top.pair_cost_ns)} for the probes of each callback"
    return (
        f"observing takes {share(top.perf_cpu + top.own_cpu, 1)} of a CPU "
        f"(perf {100 * top.perf_cpu:.1f}, fusetools {100 * top.own_cpu:.1f}){probes}"
    )


def dropped(top: Top) -> str:
    """Return the numbers of lost events and of requests that are left out."""
    parts = [f"{plural(top.lost, 'event')} lost: the figures are too low"] if top.lost else []
    if top.left_out:
        parts.append(f"{plural(top.left_out, 'request')} left out: too many in one interval")
    return "; ".join(parts)


def _missing(top: Top) -> list[str]:
    wanted = [m for m in top.missing if m.layer in ("daemon", "request")]
    return [f"missing: {printable(m.text)}" for m in wanted[:3]]


def _oldest(top: Top) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("in flight for", "operation", "caller", "daemon", "path")]
    for request in top.oldest:
        rows.append(
            (
                duration(request.age_ns) + (" ?" if request.unsure else ""),
                request.operation,
                _caller(request),
                "-" if request.thread is None else f"thread {request.thread}",
                request.path or request.mount,
            )
        )
    return rows


def _caller(request: UnderWay) -> str:
    return f"{request.comm or '?'} ({request.pid})" if request.pid is not None else "-"


def _rows(top: Top, width: int | None) -> list[str]:
    """Return the table. Names are cut to the remaining width; small screens get fewer figures."""
    narrow = width is not None and width < WIDE
    heads = [head for head in HEADS if not (narrow and head in OMITTED)]
    rows = [[_mark(top, head) for head in heads]]
    for row in top.rows:
        figures = _figures(top, row)
        rows.append([figures[head] for head in heads])
    names = [NAMES.get(top.by, top.by), *(_label(top, row) for row in top.rows)]
    if width is not None:
        room = max(width - sum(max(map(len, column)) + 2 for column in zip(*rows)), 10)
        keep_end = top.by in ("file", "directory", "cgroup", "mount")
        names = [cut(name, room, keep_end) for name in names]
    return table([[name, *row] for name, row in zip(names, rows)], "<" + ">" * len(heads))


def _figures(top: Top, row: Row) -> dict[str, str]:
    per_op = row.bytes / row.transfers / 1e3 if row.transfers else None
    some = row.requests > 0
    return {
        "op/s": number(row.per_second),
        "kB/s": number(row.bytes / 1e3 / top.seconds) if row.bytes else "-",
        "kB/op": number(per_op),
        "queue": duration(row.queue_ns),
        "RTT": duration(row.rtt_ns),
        "exec": duration(row.exec_ns),
        "p50": duration(row.p50_ns if some else None),
        "p99": duration(row.p99_ns if some else None),
        "max": duration(row.max_ns if some else None),
        "wait": f"{row.waited_seconds / top.seconds:.2f}",
        "now": "-" if row.under_way is None else number(row.under_way),
        "err": number(row.errors),
    }


def _mark(top: Top, head: str) -> str:
    """Return the column's head, marked if the rows are sorted by it."""
    return head + ("*" if SORTED.get(top.sort, top.sort) == head else "")


def _label(top: Top, row: Row) -> str:
    label = printable(row.label) or "?"
    if top.by in ("process", "thread"):
        who = "?" if row.id is None else str(row.id)
        return f"{label} ({who})" + (f" {printable(row.mount)}" if row.mount else "")
    return label
