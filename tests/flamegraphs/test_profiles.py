"""JSON for Speedscope and the Firefox Profiler, compared with their viewers' requirements."""

from __future__ import annotations

import json
from collections import Counter
from typing import Callable

import pytest

from fusetools import flame

STACKS = {"main;read;lookup": 400, "main;read": 200.5, "main;write;lookup": 100, "idle": 100}
GRAPH = flame.Folded(STACKS, "us")
DIFF = flame.diff(flame.Folded({"main;read": 7}, "us"), GRAPH)

# https://www.speedscope.app/file-format-schema.json, the part of sampled profiles.
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


def speedscope_stacks(text: str) -> list[dict[str, float]]:
    """Return the stacks of each profile. Assert the rules of the schema and of the importer."""
    file = json.loads(text)
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(file) <= {
        "$schema",
        "shared",
        "profiles",
        "name",
        "activeProfileIndex",
        "exporter",
    }
    frames = file["shared"]["frames"]
    assert all(set(frame) == {"name"} and isinstance(frame["name"], str) for frame in frames)
    assert isinstance(file["name"], str) and isinstance(file["exporter"], str)
    assert 0 <= file["activeProfileIndex"] < len(file["profiles"])
    found = []
    for profile in file["profiles"]:
        assert set(profile) == {
            "type",
            "name",
            "unit",
            "startValue",
            "endValue",
            "samples",
            "weights",
        }
        assert profile["type"] == "sampled"
        assert isinstance(profile["name"], str)
        assert profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(weight >= 0 for weight in profile["weights"])
        assert all(0 <= frame < len(frames) for stack in profile["samples"] for frame in stack)
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        found.append(
            {
                ";".join(frames[frame]["name"] for frame in stack): weight
                for stack, weight in zip(profile["samples"], profile["weights"])
            }
        )
    return found


def test_speedscope_holds_the_stacks() -> None:
    assert speedscope_stacks(flame.speedscope(GRAPH, title="T")) == [STACKS]
    assert json.loads(flame.speedscope(GRAPH))["profiles"][0]["unit"] == "microseconds"
    assert json.loads(flame.speedscope(flame.Folded({"a": 1})))["profiles"][0]["unit"] == "none"


def test_speedscope_keeps_the_order_of_time() -> None:
    order = [("idle", 60), ("main;read", 200.5), ("main;read;lookup", 400), ("idle", 40)]
    rest = ("main;write;lookup", 100)
    file = json.loads(flame.speedscope(flame.Folded(STACKS, "us", [*order, rest])))
    assert file["profiles"][0]["weights"] == [60, 200.5, 400, 40, 100]
    # A beginning alone is not the whole.
    file = json.loads(flame.speedscope(flame.Folded(STACKS, "us", order)))
    assert file["profiles"][0]["weights"] == [100, 200.5, 400, 100]


def test_speedscope_of_a_difference() -> None:
    assert speedscope_stacks(flame.speedscope(DIFF)) == [{"main;read": 7}, STACKS]


def firefox_stacks(text: str) -> list[dict[str, float]]:
    """Return the stacks of each thread. Assert the rules of processed profiles of version 57."""
    profile = json.loads(text)
    meta = profile["meta"]
    assert meta["preprocessedProfileVersion"] == 57
    assert [c["color"] for c in meta["categories"]].count("grey") == 1
    assert all(c["subcategories"][0] == "Other" for c in meta["categories"])
    strings = profile["shared"]["stringArray"]
    found = []
    for thread in profile["threads"]:
        for table in (
            "samples",
            "markers",
            "stackTable",
            "frameTable",
            "funcTable",
            "resourceTable",
            "nativeSymbols",
        ):
            columns = thread[table]
            for name, column in columns.items():
                if isinstance(column, list):
                    assert len(column) == columns["length"], (table, name)
        stack, frame, func = thread["stackTable"], thread["frameTable"], thread["funcTable"]
        # Callers come before callees, and categories are present.
        assert all(p is None or p < i for i, p in enumerate(stack["prefix"]))
        assert all(0 <= c < len(meta["categories"]) for c in frame["category"])
        assert thread["samples"]["time"] == sorted(thread["samples"]["time"])
        stacks: dict[str, float] = {}
        for node, weight in zip(thread["samples"]["stack"], thread["samples"]["weight"]):
            names = []
            while node is not None:
                names.append(strings[func["name"][frame["func"][stack["frame"][node]]]])
                node = stack["prefix"][node]
            stacks[";".join(reversed(names))] = weight
        found.append(stacks)
    return found


def test_firefox_holds_the_stacks() -> None:
    (stacks,) = firefox_stacks(flame.firefox(GRAPH, title="T"))
    assert stacks == pytest.approx({name: weight / 1000 for name, weight in STACKS.items()})
    thread = json.loads(flame.firefox(GRAPH))["threads"][0]
    assert thread["samples"]["weightType"] == "tracing-ms"
    text = flame.firefox(flame.Folded({"a": 3}))
    assert firefox_stacks(text) == [{"a": 3}]
    assert json.loads(text)["threads"][0]["samples"]["weightType"] == "samples"


def test_firefox_of_a_difference() -> None:
    before, after = firefox_stacks(flame.firefox(DIFF))
    assert before == pytest.approx({"main;read": 0.007})
    assert set(after) == set(STACKS)


def test_firefox_categories_are_kinds() -> None:
    kinds = flame.Kinds({"read": "kernel"}.get, ("user", "kernel"))
    profile = json.loads(flame.firefox(GRAPH, kinds=kinds))
    firefox_stacks(json.dumps(profile))
    names = [category["name"] for category in profile["meta"]["categories"]]
    assert names == ["Other", "user", "kernel"]
    used = Counter(names[c] for c in profile["threads"][0]["frameTable"]["category"])
    assert used == {"kernel": 1, "Other": 4}


@pytest.mark.parametrize("draw", [flame.speedscope, flame.firefox, flame.html])
def test_nothing_to_draw(draw: Callable[[flame.Folded], str]) -> None:
    with pytest.raises(flame.Error, match="no stacks in it"):
        draw(flame.Folded({}))


@pytest.mark.parametrize("draw", [flame.speedscope, flame.firefox])
def test_any_name_is_json(draw: Callable[[flame.Folded], str]) -> None:
    names = {"\ud800x": 1, '"\\': 2, "</script>": 3, "\x07": 4}
    json.loads(draw(flame.Folded(names)))
