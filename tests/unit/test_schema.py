"""What `--json` prints is what docs/schema says, and that is what the types of results say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import jsonschema
import pytest
from fixtures import Invoke
from schemas import held

from fusetools.render.json import schema

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


def test_no_file_is_left() -> None:
    assert {path.name for path in schema.FOLDER.glob("*.json")} == set(schema.texts())


@pytest.mark.parametrize("name", RUNS)
def test_what_is_printed(run: Invoke, name: str) -> None:
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
    """No number of these names is without one."""
    bare = re.compile(r"^(min|max|mean|p50|p99|duration|total|time|start|end|size|offset|waited)$")
    for name in schema.ANSWERS:
        whole = schema.schema(name)
        for at, kind in [(name, whole), *whole["$defs"].items()]:
            if at in ("Stacks", "flame", "Amount"):  # of samples: in the unit that it names
                continue
            assert not [key for key in kind["properties"] if bare.match(key)], at


def test_a_damaged_answer_is_told() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"fusetools": "1"}, schema.schema("hist"))
