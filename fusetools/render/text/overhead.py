"""fusetools overhead as text."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence

from fusetools.figures import duration, number, plural, size
from fusetools.printable import printable
from fusetools.render.text.estimate import confidence, interval, seconds
from fusetools.render.text.footer import missing
from fusetools.render.text.layout import Whole, lines, table
from fusetools.results.estimate import Estimate
from fusetools.results.overhead import Overhead


def render(result: Overhead) -> str:
    rows: list[Sequence[str]] = [
        ("", "time", "slow-down", "", "events", "per event", "bytes/s"),
        ("nothing", seconds(statistics.median(result.plain_seconds)), *[""] * 5),
    ]
    rows += [
        (
            cost.part,
            seconds(cost.median_seconds),
            *_slow_down(cost.slow_down, result.plain_seconds),
            number(round(cost.events)),
            duration(cost.event_ns if _sure(cost.slow_down) else None),
            size(cost.bytes_per_second),
        )
        for cost in result.costs
    ]
    how = result.costs[0].slow_down
    output = [
        Whole(f"recording {printable(shlex.join(result.workload))}"),
        *table(rows, "<>><>>>"),
        "",
        f"medians of {plural(how.runs, 'round')}; {confidence(how)}",
    ]
    whole = result.costs[-1]
    if whole.estimated is not None:
        about = "at least" if whole.estimated_at_least else "about"
        factor = f"{about} {whole.estimated:.3f} times, for sequential workloads"
        output.append(f"the recording's own estimate: {factor}")
    if result.pair_ns is None or result.inside_ns is None:
        output.append("no callback is probed here: a probe pair's cost was not measured")
    else:
        output.append(
            f"a probe pair on an empty function: {duration(result.pair_ns)} a call, "
            f"{duration(result.inside_ns)} of it inside the call"
        )
    if statistics.median(result.plain_seconds) < SHORT:
        took = seconds(statistics.median(result.plain_seconds))
        output.append(f"warning: the workload takes {took}: use a workload of several seconds")
    if result.lost:
        output.append(f"{plural(result.lost, 'LOST event')}: their cost is only partly included")
    output += [f"warning: {printable(warning)}" for warning in result.warnings]
    output += missing(result.missing, {m.layer for m in result.missing})
    return lines(output)


SHORT = 1.0  # s; in shorter runs, start-up, exit and other processes are too large a part


def _slow_down(slow_down: Estimate, plain: Sequence[float]) -> tuple[str, str]:
    """Return the ratio and its interval, unless it is within the variation of plain runs."""
    if slow_down.runs > 1 and not _sure(slow_down):
        differ = 100 * (max(plain) / min(plain) - 1)
        return "not measurable", f"runs differ by {differ:.0f} %"
    return f"{slow_down.median:.3f}", interval(slow_down, "{:.3f}")


def _sure(slow_down: Estimate) -> bool:
    """Return whether a slow-down is more than noise, so that a cost per event is known."""
    return slow_down.runs > 1 and slow_down.low > 1
