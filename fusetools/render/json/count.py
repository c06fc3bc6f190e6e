"""fusetools count as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.count import Counts


def render(result: Counts) -> str:
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
    return dump({"counts": rows, "unmatched": result.unmatched, **result.facts.to_json()})
