"""fusetools graph --calls as JSON, in parts: a long recording has millions of calls."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fusetools.results.encode import encode
from fusetools.results.envelope import envelope
from fusetools.results.graph import GraphCalls


def render_calls(result: GraphCalls) -> Iterator[str]:
    """Yield the parts of one object, with a line for each outermost call."""
    around = {**envelope("graph", result.facts), "unmatched": result.unmatched}
    yield json.dumps(around, indent=1)[:-2] + ',\n "calls": ['
    between = "\n  "
    for call in result.calls:
        yield between + json.dumps(encode(call))
        between = ",\n  "
    yield "\n ]\n}\n"
