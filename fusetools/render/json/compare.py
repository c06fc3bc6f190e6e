"""fusetools compare as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.compare import LEVEL, Compared, Measure


def render(result: Compared) -> str:
    return dump(
        {
            "sides": list(result.sides),
            "groups": [
                {"point": group.label, "measures": [_measure(m) for m in group.measures]}
                for group in result.groups
            ],
            "tested": result.values,
            "tests": result.tests,
            "test": "Mann-Whitney U, two-sided, Benjamini-Hochberg",
            "level": LEVEL,
            "notes": list(result.notes),
        }
    )


def _measure(m: Measure) -> dict[str, object]:
    return {
        "name": m.name,
        "layer": m.layer,
        "sides": [
            {
                "count": side.count,
                "p50_ns": side.p50,
                "p99_ns": side.p99,
                "total_ns": side.total,
                "buckets": [list(bucket) for bucket in side.buckets],
                "times_best": side.times_best,
                "slower_share": side.slower,
                "p": side.p,
                "differs": side.differs,
            }
            for side in m.sides
        ],
    }
