"""fusetools overhead as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.overhead import Overhead


def render(result: Overhead) -> str:
    rows = [
        {
            "part": cost.part,
            "seconds": list(cost.seconds),
            "median_seconds": cost.median,
            "slow_down": cost.slow_down.to_json(),
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
