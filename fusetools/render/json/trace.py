"""fusetools trace as JSON."""

from __future__ import annotations

import json

from fusetools.results.trace import Ended


def render(one: Ended) -> str:
    """In one line."""
    return json.dumps(vars(one), allow_nan=False) + "\n"
