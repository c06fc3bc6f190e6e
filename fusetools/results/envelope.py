"""The keys around each answer in JSON."""

from __future__ import annotations

from fusetools import __version__
from fusetools.results.encode import encode
from fusetools.results.facts import Facts

# Raised when a key is removed or renamed, or its meaning or unit changes; new keys may come at any
# time (docs/schema/README.md).
SCHEMA = 1


def envelope(command: str, facts: Facts | None) -> dict[str, object]:
    """``facts``: those of the answer's recording; None: it has none, or several."""
    return {
        "fusetools": __version__,
        "schema": SCHEMA,
        "command": command,
        "recording": None if facts is None else encode(facts),
    }
