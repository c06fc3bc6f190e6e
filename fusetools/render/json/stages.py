"""fusetools stages as JSON."""

from __future__ import annotations

from typing import Any

from fusetools.render.json.dump import dump
from fusetools.results.stages import OperationStages, Stage, Stages


def render(result: Stages) -> str:
    found = [_operation(o, result.by) for o in result.operations]
    joined = [vars(m) for m in result.joined]
    facts = result.facts.to_json()
    return dump(
        {"operations": found, "joined": joined, "event_cost_ns": result.event_cost, **facts}
    )


def _operation(o: OperationStages, by: str) -> dict[str, Any]:
    return {
        "operation": o.operation,
        "waits": o.waits,
        **({"by": by, "key": o.key} if by else {}),
        "requests": o.requests,
        "matched": o.matched,
        "timed": o.timed,
        "lower_bounds_from_ns": o.least,
        "unmatched": o.unmatched,
        "errors": o.errors,
        "stages": [_stage(stage, o) for stage in o.stages],
        "total_mean_ns": o.mean,
        "total_p50_ns": o.p50,
        "total_p99_ns": o.p99,
        "total_max_ns": o.max,
        "total_ns": o.total,
        "probes_ns": o.probes,
        "io_uring": o.ring,
        "handed": o.handed,
    }


def _stage(stage: Stage, o: OperationStages) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "requests": stage.requests,
        "mean_ns": stage.mean,
        "p50_ns": stage.p50,
        "p99_ns": stage.p99,
        "max_ns": stage.max,
        "share": stage.share,
        "total_ns": stage.total,
        "probes_ns": stage.probes,
        "parts_ns": stage.parts,
        "unsplit_ns": stage.unsplit,
    }
