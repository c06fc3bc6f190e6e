"""JSON Schemas of the output of `--json`, made from the types of results.

`python -m fusetools.render.json.schema` writes them into docs/schema/, a file for each command and
defs.json for the types that several commands print.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Any

from fusetools.results import units
from fusetools.results.cache import Cache
from fusetools.results.compare import Compared
from fusetools.results.count import Counts
from fusetools.results.diff import Differences
from fusetools.results.doctor import Doctor
from fusetools.results.encode import members
from fusetools.results.envelope import SCHEMA
from fusetools.results.errors import Errors
from fusetools.results.facts import Facts
from fusetools.results.flame import Stacks
from fusetools.results.fleet import Causes, Outliers
from fusetools.results.flight import Written
from fusetools.results.graph import Graph, GraphCall
from fusetools.results.groups import Groups
from fusetools.results.heat import Heat
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
from fusetools.results.whatif import WhatIf
from fusetools.results.why import Why

ANSWERS: dict[str, type] = {
    "cache": Cache,
    "compare": Compared,
    "count": Counts,
    "diff": Differences,
    "doctor": Doctor,
    "errors": Errors,
    "flame": Stacks,
    "fleet": Outliers,
    "fleet-why": Causes,
    "graph": Graph,
    "groups": Groups,
    "heat": Heat,
    "hist": Histograms,
    "merge": Merged,
    "open": Outcome,
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
    "whatif": WhatIf,
    "why": Why,
}
# Keys of JSON Schema, and their values.
Schema = dict[str, Any]
FOLDER = Path(__file__).parents[3] / "docs/schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SHARED = "defs.json"
WIDTH = 80
GROUPING = ("count", "errors", "hist", "slow", "stages")  # commands with --by
_PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}


def schema(name: str) -> Schema:
    """Return the schema of a command's output, with all types that it needs."""
    made = _Made()
    answer = made.object_of(ANSWERS[name])
    command = "hist" if name == "heat" else name.removesuffix("-dry-run")
    recording: Schema = {"type": "null"}
    if "facts" in getattr(ANSWERS[name], "JSON_HIDDEN", ()):
        recording = made.reference(Facts)
    properties: Schema = {
        "fusetools": {"type": "string"},
        "schema": {"const": SCHEMA},
        "command": {"enum": list(GROUPING)} if name == "groups" else {"const": command},
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
        "$schema": DIALECT,
        "title": f"fusetools {command} --json" if name != "groups" else "--by, in JSON",
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
        """Return the schema of a TypedDict, which is printed as it is."""
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
        """Return the schema of an annotation, resolved in the module of the class or of a base
        class."""
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
        if name in ("Path", "Filter", "Any"):
            return {} if name == "Any" else {"type": "string"}
        known = names.get(name) or vars(units).get(name)
        if isinstance(known, type) and issubclass(known, Enum):
            return {"type": "string", "enum": [member.value for member in known]}
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
    """Return the content of each file by its name."""
    schemas = {f"{name}.json": schema(name) for name in ANSWERS}
    uses = Counter(kind for made in schemas.values() for kind in made["$defs"])
    shared: Schema = {}
    for made in schemas.values():
        for kind in [kind for kind in made["$defs"] if uses[kind] > 1]:
            definition = made["$defs"].pop(kind)
            assert shared.setdefault(kind, definition) == definition, f"two types named {kind}"
    pointers = {f"#/$defs/{kind}" for kind in shared}
    files = {name: _moved(made, pointers) for name, made in schemas.items()}
    title = "types that several commands of fusetools print"
    files[SHARED] = {"$schema": DIALECT, "title": title, "$defs": dict(sorted(shared.items()))}
    return {name: _printed(made) + "\n" for name, made in files.items()}


def _moved(value: Any, pointers: set[str]) -> Any:
    """Let the references to these pointers lead into SHARED."""
    if isinstance(value, dict):
        return {key: _moved(item, pointers) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, pointers) for item in value]
    return f"{SHARED}{value}" if value in pointers else value


def _printed(value: Any, indent: str = "") -> str:
    """Return JSON with each value in one line that fits there."""
    line = json.dumps(value)
    if not isinstance(value, (dict, list)) or len(indent + line) <= WIDTH:
        return line
    inside = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_printed(item, inside)}" for key, item in value.items()]
    else:
        parts = [_printed(item, inside) for item in value]
    begin, end = line[0], line[-1]
    return f"{begin}\n{inside}" + f",\n{inside}".join(parts) + f"\n{indent}{end}"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
