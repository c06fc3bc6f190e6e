"""fusetools diff as JSON."""

from __future__ import annotations

from typing import Any

from fusetools.render.json.dump import dump
from fusetools.results.diff import Difference, Differences, Side


def render(result: Differences) -> str:
    return dump(
        {
            "differences": [_difference(d) for d in result.differences],
            "per": result.per or None,
            "a": result.a.to_json(),
            "b": result.b.to_json(),
        }
    )


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
