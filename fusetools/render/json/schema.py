"""JSON Schemas of the output of `--json`, made from the types of results.

`python -m fusetools.render.json.schema` writes them into docs/schema/.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from fusetools.results import units
from fusetools.results.compare import Compared
from fusetools.results.count import Counts
from fusetools.results.diff import Differences
from fusetools.results.doctor import Doctor
from fusetools.results.encode import members
from fusetools.results.envelope import SCHEMA
from fusetools.results.errors import Errors
from fusetools.results.facts import Facts
from fusetools.results.flame import Stacks
from fusetools.results.flight import Written
from fusetools.results.graph import Graph, GraphCall
from fusetools.results.hist import Histograms
from fusetools.results.merge import Merged
from fusetools.results.overhead import Overhead
from fusetools.results.plan import Planned
from fusetools.results.queue import Queue
from fusetools.results.record import Outcome
from fusetools.results.show import Shown
from fusetools.results.slow import Slowest
from fusetools.results.stages import Stages
from fusetools.results.stuck import Stuck
from fusetools.results.sweep import Sweep
from fusetools.results.top import Top
from fusetools.results.trace import Ended

ANSWERS: dict[str, type] = {
    "compare": Compared,
    "count": Counts,
    "diff": Differences,
    "doctor": Doctor,
    "errors": Errors,
    "flame": Stacks,
    "graph": Graph,
    "hist": Histograms,
    "merge": Merged,
    "overhead": Overhead,
    "queue": Queue,
    "record": Outcome,
    "record-dry-run": Planned,
    "show": Shown,
    "slow": Slowest,
    "snap": Written,
    "stages": Stages,
    "stuck": Stuck,
    "sweep": Sweep,
    "top": Top,
    "trace": Ended,
}
# Keys of JSON Schema, and their values.
Schema = dict[str, Any]
FOLDER = Path(__file__).parents[3] / "docs/schema"
_PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}


def schema(name: str) -> Schema:
    """The schema of a command's output."""
    made = _Made()
    answer = made.object_of(ANSWERS[name])
    command = name.removesuffix("-dry-run")
    recording: Schema = {"type": "null"}
    if "facts" in getattr(ANSWERS[name], "JSON_HIDDEN", ()):
        recording = made.reference(Facts)
    properties: Schema = {
        "fusetools": {"type": "string"},
        "schema": {"const": SCHEMA},
        "command": {"const": command},
        "recording": recording,
    }
    taken = properties.keys() & answer["properties"].keys()
    assert not taken, f"{name}: {taken} would hide what every answer has"
    properties |= answer["properties"]
    optional = {}
    if name == "flame":
        optional = {"before": made.reference(Stacks)}
    if name == "graph":  # with --calls
        calls = made.list_of(made.reference(GraphCall))
        optional = {"calls": calls, "roots": properties.pop("roots")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"fusetools {command} --json",
        "type": "object",
        "properties": {**properties, **optional},
        "required": list(properties),
        "additionalProperties": False,
        "$defs": dict(sorted(made.definitions.items())),
    }


class _Made:
    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def reference(self, cls: type) -> Schema:
        name = cls.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # it may contain itself
            self.definitions[name] = self.object_of(cls)
        return {"$ref": f"#/$defs/{name}"}

    def object_of(self, cls: type) -> Schema:
        properties = {name: self.type_of(cls, annotation) for name, annotation in members(cls)}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def _typed(self, cls: type) -> Schema:
        """The schema of a TypedDict, which is printed as it is."""
        names = vars(sys.modules[cls.__module__])
        properties = {
            key: self._node(ast.parse(of.__forward_arg__, mode="eval").body, names)
            for key, of in cls.__annotations__.items()
        }
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(vars(cls)["__required_keys__"]),
            "additionalProperties": False,
        }

    @staticmethod
    def list_of(items: Schema) -> Schema:
        return {"type": "array", "items": items}

    def type_of(self, cls: type, annotation: str) -> Schema:
        """The schema of an annotation, resolved in the module of the class or of a base class."""
        names: dict[str, object] = {}
        for base in reversed(cls.__mro__):
            names.update(vars(sys.modules[base.__module__]))
        return self._node(ast.parse(annotation, mode="eval").body, names)

    def _node(self, node: ast.expr, names: dict[str, object]) -> Schema:
        if isinstance(node, ast.BinOp):
            return _either(self._node(node.left, names), self._node(node.right, names))
        if isinstance(node, ast.Constant) and node.value is None:
            return {"type": "null"}
        if isinstance(node, ast.Subscript):
            container = ast.unparse(node.value)
            inside = node.slice
            parts = list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]
            if container in ("dict", "Mapping"):
                return {"type": "object", "additionalProperties": self._node(parts[1], names)}
            parts = [part for part in parts if ast.unparse(part) != "..."]
            return self.list_of(_any_of([self._node(part, names) for part in parts]))
        name = ast.unparse(node)
        if name in _PLAIN:
            return {"type": _PLAIN[name]}
        if name in ("Path", "Any"):
            return {"type": "string"} if name == "Path" else {}
        known = names.get(name) or vars(units).get(name)
        if known in (int, float):
            return {"type": _PLAIN[known.__name__]}
        if isinstance(known, type) and (
            dataclasses.is_dataclass(known) or hasattr(known, "_fields")
        ):
            return self.reference(known)
        if isinstance(known, type) and hasattr(known, "__required_keys__"):
            return self._typed(known)
        raise TypeError(f"no schema for {name}")


def _any_of(schemas: list[Schema]) -> Schema:
    whole = schemas[0]
    for more in schemas[1:]:
        whole = _either(whole, more)
    return whole


def _either(a: Schema, b: Schema) -> Schema:
    if a == b:
        return a
    if set(a) == set(b) == {"type"}:
        types = [t for side in (a, b) for t in _listed(side["type"])]
        return {"type": list(dict.fromkeys(types))}
    return {"anyOf": [a, b]}


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def texts() -> dict[str, str]:
    """File name to content."""
    return {f"{name}.json": json.dumps(schema(name), indent=1) + "\n" for name in ANSWERS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
