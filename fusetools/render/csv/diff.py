"""fusetools diff as CSV."""

from __future__ import annotations

from fusetools.csvfile import written
from fusetools.results.diff import Differences
from fusetools.results.hist import PERCENTILES


def render(result: Differences) -> str:
    columns = ["function", "operation", "layer", "count_a", "count_b", "change", "percent"]
    columns += [f"p{p}_ns_{side}" for p in PERCENTILES for side in "ab"]
    columns += ["p50_change_ns", "p50_percent", "per"]
    rows = (
        [
            d.function,
            d.operation,
            d.layer,
            d.a.count,
            d.b.count,
            d.change,
            d.percent,
            *(side.percentiles_ns.get(p) for p in PERCENTILES for side in (d.a, d.b)),
            d.slower("50"),
            d.slower_percent("50"),
            result.per,
        ]
        for d in result.differences
    )
    return written(columns, rows)
