"""What `--json` printed, held to its schema in docs/schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from fusetools import __version__
from fusetools.render.json import schema
from fusetools.results.envelope import SCHEMA


def held(name: str, text: str) -> dict[str, Any]:
    """The object, which is as the schema ``name`` says, and says of whom and what it is."""
    value: dict[str, Any] = json.loads(text)
    jsonschema.validate(value, json.loads((schema.FOLDER / f"{name}.json").read_text()))
    assert value["fusetools"] == __version__ and value["schema"] == SCHEMA
    assert value["command"] == name.removesuffix("-dry-run")
    return value
