"""fusetools top as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from fusetools.results.top import Top


def render(result: Top) -> str:
    """In one line."""
    return json.dumps({"seconds": result.seconds, **asdict(result)}, allow_nan=False) + "\n"
