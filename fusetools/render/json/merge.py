"""fusetools merge as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.merge import Merged


def render(result: Merged) -> str:
    return dump({"records": result.records, "warnings": list(result.warnings)})
