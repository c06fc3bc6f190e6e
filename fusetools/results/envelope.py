"""Common keys of all answers in JSON."""

from __future__ import annotations

from fusetools import __version__
from fusetools.results.encode import encode
from fusetools.results.facts import Facts

# Version of the schema. It increases when a key is removed or renamed, or changes its meaning or
# unit. A new key does not change it (docs/schema/README.md).
SCHEMA = 2


def envelope(command: str, facts: Facts | None) -> dict[str, object]:
    """Return the common keys. ``facts``: of the answer's recording; None: none, or several."""
    return {
        "fusetools": __version__,
        "schema": SCHEMA,
        "command": command,
        "recording": None if facts is None else encode(facts),
    }
