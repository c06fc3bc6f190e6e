"""Repeated runs as text and as JSON: overhead, sweep."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from typing import Any

from fusetools.measure.figures import Estimate
from fusetools.measure.overhead import Overhead
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
            f"{cost.slow_down.median:.3f}",
            _interval(cost.slow_down, "{:.3f}"),
            number(round(cost.events)),
            duration(cost.event_ns),
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
    if result.lost:
        said.append(f"{plural(result.lost, 'event')} LOST: the cost of those is not all in there")
    said += [f"warning: {printable(warning)}" for warning in result.warnings]
    for m in result.missing:
        said.append(f"not recorded: {printable(m.what)} ({printable(m.why)})")
        said += ways_out(m.mend, "  ")
    return lines(said)


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
