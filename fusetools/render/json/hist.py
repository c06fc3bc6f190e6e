"""fusetools hist as JSON."""

from __future__ import annotations

from typing import Any

from fusetools.render.json.dump import dump
from fusetools.results.hist import Histogram, Histograms


def render(result: Histograms, overhead: bool = False) -> str:
    """``overhead``: with the share of each bin of the daemon's that is the probes'."""
    rows = [histogram(h) for h in result.histograms]
    probes = result.facts.probe_cost
    if overhead and probes is not None:
        for row, h in zip(rows, result.histograms):
            if h.layer == "daemon":
                shares = [[min(probes / max(ns, 1), 1) for ns in (b[1], b[0])] for b in h.buckets]
                row["tracer"] = shares
    return dump({"histograms": rows, "unmatched": result.unmatched, **result.facts.to_json()})


def histogram(h: Histogram) -> dict[str, Any]:
    # Of function_graph's functions alone it is known what they did themselves.
    own: dict[str, Any] = {} if h.self_time is None else {"total": h.total, "self": h.self_time}
    if h.unanswered:
        own.update({"unanswered": h.unanswered, "lower_bounds_from": h.least})
    for name, part in (("until_reply", h.until_reply), ("after_reply", h.after_reply)):
        if part:
            own[name] = {
                key: value
                for key, value in histogram(part).items()
                if key in ("count", "min", "max", "mean", "percentiles", "buckets")
            }
    return {
        "operation": h.operation,
        "layer": h.layer,
        "function": h.function,
        "unit": h.unit,
        "count": h.count,
        "unmatched": h.unmatched,
        "min": h.min,
        "max": h.max,
        "mean": h.mean,
        "percentiles": h.percentiles,
        "buckets": [list(bucket) for bucket in h.buckets],
        **own,
    }
