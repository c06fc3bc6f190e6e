"""fusetools stuck as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from fusetools.render.json.dump import dump
from fusetools.results.stuck import Stuck


def render(result: Stuck, compact: bool = False) -> str:
    """``compact``: in one line."""
    value = {"stuck": result.stuck, **asdict(result)}
    return json.dumps(value, allow_nan=False) + "\n" if compact else dump(value)
