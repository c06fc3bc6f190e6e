"""Validate output of `--json` by its schema in docs/schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from referencing import Registry, Resource

from fusetools import __version__
from fusetools.render.json import schema
from fusetools.results.envelope import SCHEMA


def validate(value: object, name: str) -> None:
    """Raise jsonschema.ValidationError if the value does not match docs/schema/NAME.json."""
    kinds = json.loads((schema.FOLDER / schema.SHARED).read_text())
    registry = Registry().with_resource(schema.SHARED, Resource.from_contents(kinds))
    made = json.loads((schema.FOLDER / f"{name}.json").read_text())
    jsonschema.validate(value, made, registry=registry)


def held(name: str, text: str) -> dict[str, Any]:
    """Return the object that a command printed, validated by its schema."""
    value: dict[str, Any] = json.loads(text)
    validate(value, name)
    assert value["fusetools"] == __version__ and value["schema"] == SCHEMA
    assert value["command"] == name.removesuffix("-dry-run")
    return value
