"""fusetools sweep as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.sweep import Sweep


def render(result: Sweep) -> str:
    experiment = result.experiment
    return dump(
        {
            "folder": str(result.path),
            "experiment": experiment.to_json(),
            "repeat": result.repeat,
            "points": [one.to_json() for one in result.points],
            "to_do": result.to_do,
            "left_out": dict(result.left_out),
            "lost": result.lost,
            "warnings": list(result.warnings),
        }
    )
