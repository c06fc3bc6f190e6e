"""JSON: the same figures as the text, times in ns."""

from __future__ import annotations

import json
from typing import Any

from fusetools.model import Counts, Difference, Differences, Facts, Histogram, Histograms, Side


def histograms(result: Histograms) -> str:
    return _dump({"histograms": [histogram(h) for h in result.histograms], **facts(result.facts)})


def histogram(h: Histogram) -> dict[str, Any]:
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
    }


def counts(result: Counts) -> str:
    rows = [
        {
            "function": c.function,
            "operation": c.operation,
            "layer": c.layer,
            "count": c.count,
            "address": c.address,
        }
        for c in result.counts
    ]
    return _dump({"counts": rows, **facts(result.facts)})


def differences(result: Differences) -> str:
    return _dump(
        {
            "differences": [_difference(d) for d in result.differences],
            "per": result.per or None,
            "a": facts(result.a),
            "b": facts(result.b),
        }
    )


def facts(f: Facts) -> dict[str, Any]:
    """Of the whole recording: ``lost`` is a number of events."""
    return {
        "recording": f.name,
        "seconds": f.seconds,
        "requests": vars(f.requests),
        "lost": f.losses.lost,
        "throttled": f.losses.throttled,
        "warnings": list(f.losses.warnings),
        "unavailable": [vars(m) for m in f.missing],
        "probe_cost_ns": f.probe_cost,
    }


def _difference(d: Difference) -> dict[str, Any]:
    return {
        "function": d.function,
        "operation": d.operation,
        "layer": d.layer,
        "a": _side(d.a),
        "b": _side(d.b),
        "change": d.change,
        "percent": d.percent,
        "p50_change": d.slower("50"),
        "p50_percent": d.slower_percent("50"),
    }


def _side(side: Side) -> dict[str, Any]:
    return {"count": side.count, "percentiles": side.percentiles}


def _dump(value: Any) -> str:
    # ASCII only, so that no name can steer a terminal.
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
