"""Output of `--json` follows docs/schema, and docs/schema follows the types of results."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from fixtures import Invoke
from schemas import held, validate

from fusetools import cli, results
from fusetools.render.json import schema
from fusetools.results.encode import members
from fusetools.results.units import SUFFIXES

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"
RUNS = {
    "count": "count",
    "hist": "hist lookup",
    "stages": "stages",
    "stages by": "stages read --by size",
    "slow": "slow -n 30",
    "show": "show {unique}",
    "errors": "errors",
    "queue": "queue",
    "cache": "cache",
    "whatif": "whatif threads=4 attr_timeout=60",
    "diff": "diff {demo} {demo} --per second",
    "flame": "flame --offcpu",
    "flame before": "flame --offcpu --diff {demo}",
    "compare": "compare {demo} {demo}",
    "stuck": "stuck",
    "doctor": "doctor",
}


@pytest.mark.parametrize("name", schema.texts())
def test_the_files_are_made_from_the_types(name: str) -> None:
    made = schema.texts()[name]
    path = schema.FOLDER / name
    assert path.read_text() == made, "python -m fusetools.render.json.schema writes them"
    jsonschema.Draft202012Validator.check_schema(json.loads(made))


def test_each_command_with_json_has_a_schema() -> None:
    commands = {name: cli.main.get_command(click.Context(cli.main), name) for name in cli.COMMANDS}
    options = {name: [o for p in c.params for o in p.opts] for name, c in commands.items() if c}
    with_json = {name for name, names in options.items() if "--json" in names}
    answers = {name.removesuffix("-dry-run") for name in schema.ANSWERS}
    assert answers == with_json | {"snap", "groups", "heat", "fleet-why"}
    assert set(schema.GROUPING) == {
        name for name in with_json - {"top", "fleet"} if "--by" in options[name]
    }
    assert "snap" not in with_json  # it prints the flight recorder's objects, by record --json


def test_no_file_is_left() -> None:
    assert {path.name for path in schema.FOLDER.glob("*.json")} == set(schema.texts())


@pytest.mark.parametrize("name", RUNS)
def test_printed_json_follows_the_schema(run: Invoke, name: str) -> None:
    command = RUNS[name].split()[0]
    if "{unique}" in RUNS[name]:
        slow = json.loads(run("slow", "-i", str(DEMO), "--json").output)
    words = shlex.split(
        RUNS[name].format(demo=DEMO, unique=slow["requests"][0]["unique"])
        if "{unique}" in RUNS[name]
        else RUNS[name].format(demo=DEMO)
    )
    if command not in ("diff", "compare", "stuck", "doctor"):
        words += ["-i", str(DEMO)]
    value = held(command, run(*words, "--json").output)
    about = value["recording"]
    if command in ("diff", "compare", "stuck", "doctor"):
        assert about is None
    else:
        assert about["name"] == "demo.data" and about["kernel"] and about["mounts"]


def test_a_figure_says_its_unit() -> None:
    """Every number with one of these names has a unit."""
    bare = re.compile(
        r"(min|max|mean|p50|p99|duration|total|time|start|end|begin|until|age|cut|size|offset|waited)"
    )
    for name in schema.ANSWERS:
        whole = schema.schema(name)
        for at, kind in [(name, whole), *whole["$defs"].items()]:
            assert not [key for key in kind["properties"] if bare.fullmatch(key)], at


def test_a_field_says_its_unit() -> None:
    """In Python as in JSON: by the alias of its annotation."""
    unit = re.compile(rf"\b({'|'.join(SUFFIXES)})(?:Float|Estimate)?\b")
    seen = 0
    for module in pkgutil.iter_modules(results.__path__, f"{results.__name__}."):
        for cls in vars(importlib.import_module(module.name)).values():
            if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields"):
                for name, annotation in members(cls):
                    if found := unit.search(annotation):
                        seen += 1
                        suffix = SUFFIXES[found[1]]
                        assert name.endswith((suffix, suffix[1:])), (cls, name)
    assert seen > 100


def answer(run: Invoke) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(run("hist", "-i", str(DEMO), "--json").output)
    return value


def test_a_damaged_answer_is_reported(run: Invoke) -> None:
    value = answer(run)
    del value["histograms"]
    with pytest.raises(jsonschema.ValidationError, match="'histograms' is a required property"):
        validate(value, "hist")


def test_damage_in_a_shared_type_is_reported(run: Invoke) -> None:
    value = answer(run)
    del value["recording"]["kernel"]
    with pytest.raises(jsonschema.ValidationError, match="'kernel' is a required property"):
        validate(value, "hist")


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_references_lead_to_types_and_each_type_is_in_one_place() -> None:
    files = {name: json.loads(text) for name, text in schema.texts().items()}
    used: dict[str, set[str]] = {}
    for name, made in files.items():
        for reference in references(made):
            file, _, kind = reference.partition("#/$defs/")
            assert kind in files[file or name]["$defs"], f"{name}: {reference}"
            used.setdefault(file or name, set()).add(kind)
    shared = set(files[schema.SHARED]["$defs"])
    assert "Facts" in shared
    for name, made in files.items():
        kinds = set(made["$defs"])
        assert kinds == used.get(name, set()), name
        assert name == schema.SHARED or not kinds & shared, name
