"""Encodes results as JSON objects, by their types: a key for each field.

A class may name fields that are left out (JSON_HIDDEN) and properties that are shown (JSON_SHOWN).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import PurePath


def encode(value: object) -> object:
    """A value for json.dumps. TypeError: it has no form in JSON."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return fields(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Iterable):
        return [encode(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def fields(value: object) -> dict[str, object]:
    """encode() of a dataclass or a named tuple."""
    cls: type = type(value)
    return {name: encode(getattr(value, name)) for name, _ in members(cls)}


@cache
def members(cls: type) -> tuple[tuple[str, str], ...]:
    """(name, annotation) of a class's members in JSON."""
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
    """typing.NamedTuple turns its annotations into references."""
    return str(getattr(annotation, "__forward_arg__", annotation))
