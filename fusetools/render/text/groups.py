"""Groups of requests as text: `--by` of count, errors, hist, slow and stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fusetools.figures import at_least, duration, number, plural, share
from fusetools.printable import printable
from fusetools.render.text import words
from fusetools.render.text.footer import footer, missing, nothing
from fusetools.render.text.layout import cut, limit, lines, prose, table
from fusetools.render.text.stages import legend, stacked
from fusetools.results.groups import Groups, RequestGroup, Times

_BAR = 10
_LEAST_ROOM, _MOST_ROOM = 20, 10_000  # columns for a name, on a terminal and elsewhere
_PATHS = ("file", "directory", "cgroup")  # their ends differ

Columns = dict[str, Callable[[RequestGroup], str]]


def render(command: str, result: Groups, unit: str = "") -> str:
    """Return a table with a line for each group. ``command``: whose columns it has."""
    if command == "errors":
        groups = tuple(group for group in result.groups if group.failed)
        rest = sum(group.others or 1 for group in result.groups if not group.failed)
        result = replace(result, groups=groups)
    output = (
        _rows(result, _columns(command, result, unit)) if result.groups else nothing(result.facts)
    )
    if command == "errors" and rest:
        output = [*(output if result.groups else []), f"{plural(rest, 'group')} without an error"]
    if command == "stages":
        output += legend(stage for group in result.groups for stage in group.stages_ns)
    output += [""]
    for unknown in filter(None, (group.unknown for group in result.groups)):
        output += prose(printable(f"{unknown.what}: {unknown.why}"), rest="  ")
    if result.full:
        text = "there are too many groups to order them all: larger ones may be among the others"
        output += prose(text, rest="  ")
    if result.pathless:
        output.append(f"{plural(result.pathless, 'request')} skipped: path unknown or incomplete")
    if result.inherited:
        output += prose(
            f"{plural(result.inherited, 'request')} of processes that ended before record noted "
            f"their {result.by}: that of the process that started them",
            rest="  ",
        )
    if result.by in ("file", "directory"):
        output += prose(_names(result))
    output += footer(result.facts)
    return lines([*output, *missing(result.facts.missing, ("request", "daemon"))])


def _names(result: Groups) -> str:
    if any("/…/" in group.label for group in result.groups):
        return "… stands for directories that are not recorded: different files may share a line."
    return words.names_guessed(result.guessed, ()) if result.guessed else ""


def _columns(command: str, result: Groups, unit: str) -> Columns:
    def time(times: Times, ns: float | None) -> str:
        return at_least(ns, unit, times.least_ns)

    def total(g: RequestGroup) -> str:
        over = ">" if g.whole.least_ns is not None else ""
        return over + duration(g.whole.total_ns, unit)

    def mean(g: RequestGroup) -> str:
        over = ">" if g.whole.least_ns is not None else ""
        return over + duration(g.whole.total_ns / g.whole.count, unit) if g.whole.count else "-"

    failed = sum(group.failed for group in result.groups)
    seconds = result.facts.seconds
    of_time: Columns = {"TIME": total, "SHARE": lambda g: share(g.time_share, 1)}
    return {
        "stages": {
            **of_time,
            "REQUESTS": lambda g: number(g.requests),
            "MEAN": mean,
            "STAGES": lambda g: stacked(g.stages_ns.items(), g.whole.total_ns, _BAR).ljust(_BAR),
        },
        "hist": {
            **of_time,
            "REQUESTS": lambda g: number(g.latency.count),
            "P50": lambda g: time(g.latency, g.latency.p50_ns),
            "P99": lambda g: time(g.latency, g.latency.p99_ns),
            "MAX": lambda g: time(g.latency, g.latency.max_ns),
        },
        "count": {
            "REQUESTS": lambda g: number(g.begun),
            "SHARE": lambda g: share(g.requests_share, 1),
            "PER SECOND": lambda g: number(g.begun / seconds) if seconds else "-",
        },
        "slow": {
            "MAX": lambda g: time(g.whole, g.whole.max_ns),
            "REQUEST": lambda g: "-" if g.slowest is None else str(g.slowest),
            "P99": lambda g: time(g.whole, g.whole.p99_ns),
            "REQUESTS": lambda g: number(g.requests),
            **of_time,
        },
        "errors": {
            "FAILED": lambda g: number(g.failed),
            "SHARE": lambda g: share(g.failed, failed),
            "REQUESTS": lambda g: number(g.answered + sum(n for _, n in g.unanswered)),
            "MOST FREQUENT": _most_frequent,
        },
    }[command]


def _most_frequent(group: RequestGroup) -> str:
    """Return the most frequent failure."""
    found = [(n, name) for name, n in group.errors]
    found += [(n, words.REASONS[fate]) for fate, n in group.unanswered]
    found += [(group.negative, "no such file")] if group.negative else []
    n, name = max(found, default=(0, ""))
    return f"{name} {number(n)}" if n else "-"


def _rows(result: Groups, columns: Columns) -> list[str]:
    """Return the table; names are cut to the remaining width."""
    rows: list[Sequence[str]] = [tuple(columns)]
    rows += [tuple(of(group) for of in columns.values()) for group in result.groups]
    align = "".join("<" if name in ("STAGES", "MOST FREQUENT") else ">" for name in columns)
    used = sum(max(map(len, column)) + 2 for column in zip(*rows))
    room = max((limit() or _MOST_ROOM) - used, _LEAST_ROOM)
    names = [result.by.upper()]
    for group in result.groups:
        keep_end = result.by in _PATHS and not group.others and group.unknown is None
        names.append(cut(_name(group, result.by), room, keep_end))
    return table([(*row, name) for row, name in zip(rows, names)], align + "<")


def _name(group: RequestGroup, by: str) -> str:
    if group.others:
        return f"({plural(group.others, 'other')})"
    if group.unknown is not None:
        return f"({group.unknown.what})"
    if group.pid is not None:
        return f"{group.pid} {printable(group.label or group.comm)}".rstrip()
    return printable(group.label)
