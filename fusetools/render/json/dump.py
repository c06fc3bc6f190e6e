"""JSON as fusetools prints it."""

from __future__ import annotations

import json
from typing import Any


def dump(value: Any) -> str:
    # ASCII only, so that no name can steer a terminal.
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
