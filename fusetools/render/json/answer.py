"""JSON for every command, from the types of results (results/encode.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fusetools.results.encode import encode, fields
from fusetools.results.envelope import envelope


def render(
    command: str, result: object, compact: bool = False, more: Mapping[str, object] | None = None
) -> str:
    """Return the envelope with the result's fields as JSON.

    ``more``: additional fields; ``compact``: in one line."""
    facts = (
        getattr(result, "facts", None) if "facts" in getattr(result, "JSON_HIDDEN", ()) else None
    )
    data = {**envelope(command, facts), **fields(result)}
    data.update((key, encode(value)) for key, value in (more or {}).items())
    # ASCII only: no name can control a terminal.
    return json.dumps(data, indent=None if compact else 1, allow_nan=False) + "\n"
