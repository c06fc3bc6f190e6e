"""Repeated runs as text and as JSON: overhead, sweep."""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from fusetools.measure.figures import Estimate
from fusetools.measure.folder import Folder
from fusetools.measure.overhead import Overhead
from fusetools.measure.sweep import PointFigures, Sweep
from fusetools.render.csv import written
from fusetools.render.json import dump
from fusetools.render.text import duration, lines, number, plural, printable, table, ways_out


def overhead(result: Overhead) -> str:
    rows: list[Sequence[str]] = [
        ("", "time", "slow-down", "", "events", "per event", "events/s", "bytes/s"),
        ("nothing", _seconds(statistics.median(result.plain)), *[""] * 6),
    ]
    rows += [
        (
            cost.part,
            _seconds(cost.median),
            *_slow_down(cost.slow_down, result.plain),
            number(round(cost.events)),
            duration(cost.event_ns if _sure(cost.slow_down) else None),
            number(round(cost.events_per_second)),
            size(cost.bytes_per_second),
        )
        for cost in result.costs
    ]
    how = result.costs[0].slow_down
    said = [
        f"recording {printable(shlex.join(result.command))}",
        *table(rows, "<>><>>>>"),
        "",
        f"medians of {plural(how.runs, 'round')}; {confidence(how)}",
    ]
    if result.pair_ns is None or result.inside_ns is None:
        said.append("no callback is probed here: a probe pair's cost was not measured")
    else:
        said.append(
            f"a probe pair on an empty function: {duration(result.pair_ns)} a call, "
            f"{duration(result.inside_ns)} of it inside the call"
        )
    if statistics.median(result.plain) < SHORT:
        took = _seconds(statistics.median(result.plain))
        said.append(f"warning: the workload takes {took}: one of several seconds tells more")
    if result.lost:
        said.append(f"{plural(result.lost, 'event')} LOST: the cost of those is not all in there")
    said += [f"warning: {printable(warning)}" for warning in result.warnings]
    for m in result.missing:
        said.append(f"not recorded: {printable(m.what)} ({printable(m.why)})")
        said += ways_out(m.mend, "  ")
    return lines(said)


SHORT = 1.0  # s; a run's beginning and end, and others' work, are too much of what is shorter


def _slow_down(slow_down: Estimate, plain: Sequence[float]) -> tuple[str, str]:
    """The ratio and its interval; not where the runs without a recording differ by more."""
    if slow_down.runs > 1 and not (_sure(slow_down) and slow_down.median > 1):
        differ = 100 * (max(plain) / min(plain) - 1)
        return "not measurable", f"runs differ by {differ:.0f} %"
    return f"{slow_down.median:.3f}", _interval(slow_down, "{:.3f}")


def _sure(slow_down: Estimate) -> bool:
    """Whether it is more than noise: a cost for each event can be told."""
    return slow_down.runs > 1 and not slow_down.low <= 1 <= slow_down.high


# sweep


def sweep(result: Sweep) -> str:
    """What each point took, then its requests by operation."""
    experiment = result.experiment
    said = [f"{printable(experiment.about)}:"] if experiment.about else []
    said += [f"sweep of {printable(command_line(experiment.shown))}"]
    if not result.points:
        said.append("no run is done yet")
    else:
        said += ["", *table(points(result), aligned(result) + "><>>>><"), *_operations(result), ""]
        how = max((one.seconds for one in result.points), key=lambda e: e.runs)
        caches = "empty" if experiment.caches == "drop" else "as they were"
        said.append(f"medians of {plural(how.runs, 'run')}, each with caches {caches}")
        said.append(confidence(how))
    for value, why in result.left_out.items():
        said.append(f"left out: {printable(value)}: {printable(why)}")
    if not experiment.trace:
        said.append("not recorded (--no-trace): the requests")
    if result.lost:
        said.append(f"{plural(result.lost, 'event')} LOST in all runs: counts are too low")
    said += [f"warning: {printable(warning)}" for warning in result.warnings]
    if result.to_do:
        path = printable(shlex.quote(str(result.path)))
        said.append(f"{plural(result.to_do, 'run')} to do yet: fusetools sweep {path}")
    return lines(said)


def points(result: Sweep) -> list[Sequence[str]]:
    """A table's heading and its rows: what each point took."""
    axes = result.experiment.axes
    rows: list[Sequence[str]] = [
        (*axes, "time", "", "user", "system", "switches", "bytes/s", ""),
    ]
    for one in result.points:
        band = one.bandwidth
        rows.append(
            (
                *(one.point[name] for name in axes),
                _seconds(one.seconds.median),
                span(one.seconds, 1e9, duration),
                _seconds(one.user.median),
                _seconds(one.system.median),
                number(round(one.switches.median)),
                size(band.median if band else None),
                span(band, 1, size) if band else "",
            )
        )
    return rows


def aligned(result: Sweep) -> str:
    """Numbers and sizes to the right."""
    params = result.experiment.params
    return "".join(
        ">" if all(value[:1].isdigit() for value in params[name]) else "<"
        for name in result.experiment.axes
    )


MINOR = 0.05  # operations with a smaller share of the requests at every point stay out of the text


def main_operations(result: Sweep) -> tuple[list[str], list[str]]:
    """Those with many of the requests at any point, most first; and the others."""
    shares: dict[str, float] = {}
    for one in result.points:
        whole = sum(r.count.median for r in one.requests.values())
        for name, r in one.requests.items():
            shares[name] = max(shares.get(name, 0), r.count.median / whole if whole else 0)
    shown = [name for name, share in sorted(shares.items(), key=lambda s: -s[1]) if share >= MINOR]
    return shown, [name for name in shares if name not in shown]


def operation(result: Sweep, name: str) -> list[Sequence[str]]:
    """A table's heading and its rows: an operation's requests at each point."""
    axes = result.experiment.axes
    sizes = any(of.size for one in result.points if (of := one.requests.get(name)))
    rows: list[Sequence[str]] = [
        (*axes, "requests", "mean size" if sizes else "", "p50", "", "p99", ""),
    ]
    for one in result.points:
        at = one.requests.get(name)
        rows.append(
            (
                *(one.point[axis] for axis in axes),
                number(round(at.count.median)) if at else "0",
                size(at.size.median) if at and at.size else "",
                duration(at.p50.median) if at and at.p50 else "",
                span(at.p50, 1, duration) if at and at.p50 else "",
                duration(at.p99.median) if at and at.p99 else "",
                span(at.p99, 1, duration) if at and at.p99 else "",
            )
        )
    return rows


def _operations(result: Sweep) -> list[str]:
    shown, minor = main_operations(result)
    rows: list[Sequence[str]] = []
    for name in shown:
        heading, *more = operation(result, name)
        rows += [(name, *heading), *(("", *row) for row in more)]
    said = ["", *table(rows, f"<{aligned(result)}>>><><")] if rows else []
    others = [printable(name) for name in minor]
    if others:
        said.append(f"few requests, only in sweep.csv and with --json: {', '.join(others)}")
    return said


def span(e: Estimate, scale: float, show: Callable[[float], str]) -> str:
    """The interval, the unit once where both ends have the same."""
    if e.runs == 1:
        return ""
    low, high = show(scale * e.low), show(scale * e.high)
    value, _, unit = low.partition(" ")
    return f"{value if high.endswith(f' {unit}') else low}-{high}"


def command_line(words: Sequence[str]) -> str:
    """As it was typed: braces are no quoting matter here."""
    plain = re.compile(r"[\w@%+=:,./{}-]+", re.ASCII)
    return " ".join(word if plain.fullmatch(word) else shlex.quote(word) for word in words)


def sweep_json(result: Sweep) -> str:
    experiment = result.experiment
    return dump(
        {
            "folder": str(result.path),
            "experiment": experiment.to_json(),
            "repeat": result.repeat,
            "points": [point(one) for one in result.points],
            "to_do": result.to_do,
            "left_out": dict(result.left_out),
            "lost": result.lost,
            "warnings": list(result.warnings),
        }
    )


def point(one: PointFigures) -> dict[str, Any]:
    """A point of the grid, in sweep.json and of --json."""
    return {
        "params": dict(one.point),
        "seconds": _estimate(one.seconds),
        "user_seconds": _estimate(one.user),
        "system_seconds": _estimate(one.system),
        "switches": _estimate(one.switches),
        "bytes": _estimate(one.bytes) if one.bytes else None,
        "bytes_per_second": _estimate(one.bandwidth) if one.bandwidth else None,
        "requests": {
            name: {
                "layer": r.layer,
                "count": _estimate(r.count),
                **{
                    key: _estimate(value) if value else None
                    for key, value in (
                        ("p50_ns", r.p50),
                        ("p99_ns", r.p99),
                        ("mean_ns", r.mean),
                        ("size_bytes", r.size),
                    )
                },
            }
            for name, r in one.requests.items()
        },
    }


def runs_csv(folder: Folder) -> str:
    """A line for each run: the point, its figures, and those of each operation."""
    names = sorted({name for run in folder.runs.values() for name in run.requests})
    columns = [*folder.experiment.params, "round", "seconds", "user_seconds", "system_seconds"]
    columns += ["switches", "bytes", "bytes_per_second", "lost"]
    columns += [f"{name}_{key}" for name in names for key in _OF_OPERATION]
    rows = []
    for (index, n), run in sorted(folder.runs.items(), key=lambda one: one[0]):
        row: list[Any] = [*folder.points[index].values(), n, run.seconds, run.user, run.system]
        row += [run.switches, run.bytes, run.bandwidth, run.lost]
        for name in names:
            of = run.requests.get(name)
            row += [of.count, of.p50, of.p99, of.mean, of.size] if of else [0, *[None] * 4]
        rows.append(row)
    return written(columns, rows)


_OF_OPERATION = ("requests", "p50_ns", "p99_ns", "mean_ns", "size_bytes")


# Both


def confidence(e: Estimate) -> str:
    """How sure the intervals are, in words."""
    if e.runs == 1:
        return "of one run there is no interval"
    which = "from the order of the runs" if e.confidence >= 0.95 else "the whole range of the runs"
    return f"{100 * e.confidence:.0f} % confidence intervals, {which}"


def size(bytes_: float | None) -> str:
    """Bytes in three digits."""
    if bytes_ is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= 0.9995 * scale:
            return f"{number(bytes_ / scale)} {unit}"
    return f"{number(float(round(bytes_)))} B"


def _seconds(s: float) -> str:
    return duration(1e9 * s)


def _interval(e: Estimate, form: str) -> str:
    return f"{form.format(e.low)}-{form.format(e.high)}" if e.runs > 1 else ""


def overhead_json(result: Overhead) -> str:
    rows = [
        {
            "part": cost.part,
            "seconds": list(cost.seconds),
            "median_seconds": cost.median,
            "slow_down": _estimate(cost.slow_down),
            "events": cost.events,
            "bytes": cost.bytes,
            "event_ns": cost.event_ns,
            "events_per_second": cost.events_per_second,
            "bytes_per_second": cost.bytes_per_second,
        }
        for cost in result.costs
    ]
    return dump(
        {
            "command": list(result.command),
            "plain_seconds": list(result.plain),
            "parts": rows,
            "probe_pair_ns": result.pair_ns,
            "probe_cost_ns": result.inside_ns,
            "lost": result.lost,
            "warnings": list(result.warnings),
            "unavailable": [vars(m) for m in result.missing],
        }
    )


def _estimate(e: Estimate) -> dict[str, Any]:
    """A median and its confidence interval."""
    return {
        "median": e.median,
        "low": e.low,
        "high": e.high,
        "confidence": e.confidence,
        "runs": e.runs,
    }
