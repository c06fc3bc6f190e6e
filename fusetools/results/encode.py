"""Encoding of results as JSON objects, by their types: one key per field.

A class may list fields to omit (JSON_HIDDEN) and properties to add (JSON_SHOWN).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import PurePath

from fusetools.plan.filters import Filter


def encode(value: object) -> object:
    """Convert a value for json.dumps. TypeError: it has no form in JSON."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (PurePath, Filter)):
        return str(value)
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return fields(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [encode(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def fields(value: object) -> dict[str, object]:
    """Convert a dataclass or a named tuple for json.dumps."""
    cls: type = type(value)
    return {name: encode(getattr(value, name)) for name, _ in members(cls)}


@cache
def members(cls: type) -> tuple[tuple[str, str], ...]:
    """Return (name, annotation) of a class's members in JSON."""
    hidden = getattr(cls, "JSON_HIDDEN", ())
    if dataclasses.is_dataclass(cls):
        rows = [(field.name, str(field.type)) for field in dataclasses.fields(cls)]
    else:
        rows = [(name, _text(note)) for name, note in cls.__annotations__.items()]
    shown = [
        (name, str(getattr(cls, name).fget.__annotations__["return"]))
        for name in getattr(cls, "JSON_SHOWN", ())
    ]
    return (*((name, note) for name, note in rows if name not in hidden), *shown)


def _text(annotation: object) -> str:
    """Return an annotation as text. typing.NamedTuple makes it a ForwardRef."""
    return str(getattr(annotation, "__forward_arg__", annotation))
