"""fusetools errors as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.errors import Errors


def render(result: Errors) -> str:
    rows = [
        {
            "operation": o.operation,
            "requests": o.requests,
            "failed": o.failed,
            "errors": dict(o.errors),
            "negative": o.negative,
            "unanswered": dict(o.unanswered),
        }
        for o in result.operations
    ]
    disconnected = dict(result.disconnected)
    return dump({"operations": rows, "disconnected": disconnected, **result.facts.to_json()})
