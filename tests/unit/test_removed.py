"""Filters that leave no request: each answer says what they removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from columns import Columns
from fixtures import Invoke

import fusetools
from fusetools.answers.filters import Filters

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"
COMMANDS = ("slow", "stages", "errors", "queue", "cache", "why", "whatif", "hist", "count", "heat")


def ask(run: Invoke, command: str, *options: str) -> str:
    """Return what a command prints about the demo."""
    words = {"heat": ["hist", "--over-time"], "whatif": ["whatif", "threads=2"]}
    return run(*words.get(command, [command]), "-i", str(DEMO), *options).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_callers_that_there_are_instead(run: Invoke, command: str) -> None:
    requests = Columns(fusetools.open(DEMO).requests())
    comms = [str(comm) for comm in requests.comm]
    (first, *_) = sorted(set(comms), key=lambda comm: (-comms.count(comm), comm))
    said = " ".join(ask(run, command, "--comm", "nobody").split())
    assert f" of nobody: {comms.count(first):,} of {first}" in said


@pytest.mark.parametrize("command", ["slow", "stages", "errors", "heat", "hist"])
def test_the_operations_that_there_are_instead(run: Invoke, command: str) -> None:
    operations = [str(name) for name in Columns(fusetools.open(DEMO).requests()).operation]
    said = " ".join(ask(run, command, "fallocate").split())
    first = max(sorted(set(operations)), key=operations.count)
    assert f" of fallocate: {operations.count(first):,} of {first}" in said


def test_an_operation_of_another_caller(run: Invoke) -> None:
    """hist lists the functions of a known operation with 0 calls."""
    said = ask(run, "hist", "lookup", "--comm", "nobody")
    assert "no calls of nobody, of lookup\n  without --comm: " in said
    assert "no calls" not in ask(run, "hist", "lookup")


@pytest.mark.parametrize("graph", ["--on-cpu", "--offcpu", "--requests"])
def test_a_flame_graph_of_nobody(run: Invoke, graph: str) -> None:
    options = [] if graph == "--on-cpu" else [graph]
    said = run("flame", "-i", str(DEMO), *options, "--comm", "nobody", "-o", "-")
    assert said.exit_code == 1
    assert "why: no requests of nobody: " in " ".join(said.stderr.split())


def test_a_filter_that_only_slow_has(run: Invoke) -> None:
    every = len(Columns(fusetools.open(DEMO).requests()).operation)
    assert f"no requests of at least 50.0 s: {every:,} shorter\n" in ask(
        run, "slow", "--min", "50s"
    )
    assert f": {every:,} on other paths\n" in ask(run, "slow", "--path", "/nowhere/*")
    assert f"no requests from 99.0 s: {every:,} at other times\n" in ask(
        run, "slow", "--from", "99"
    )


def test_each_filter_alone_if_several_left_nothing(run: Invoke) -> None:
    comms = [str(comm) for comm in Columns(fusetools.open(DEMO).requests()).comm]
    said = ask(run, "stages", "--comm", comms[0], "--from", "99")
    found = f"{comms.count(comms[0]):,} at other times"
    assert said.startswith(
        f"no requests of {comms[0]}, from 99.0 s\n  without --from and --to: {found}"
    )
    assert "without --comm" not in said  # nobody else is there so late
    neither = ask(run, "stages", "--comm", "nobody", "--pid", "1")
    assert "\n  without filters: " in neither and "without --" not in neither


def test_nothing_is_said_where_there_are_requests(run: Invoke) -> None:
    recording = fusetools.open(DEMO)
    assert recording.stages(filters=Filters(start_ns=1)).facts.removed == ()
    assert recording.stages().facts.removed == ()
    value = json.loads(ask(run, "stages", "--comm", "nobody", "--json"))
    (removed,) = value["recording"]["removed"]
    assert removed["filter"] == "comm" and removed["wanted"] == ["nobody"] and removed["requests"]
