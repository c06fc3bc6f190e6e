"""hist and stages --corrected: their output and their errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import data
import pytest
from fixtures import Invoke
from schemas import held

import fusetools
from fusetools import _core
from fusetools.render.text.footer import corrected
from fusetools.render.text.hist import render
from fusetools.results.facts import Corrected
from fusetools.session import encoded

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"
FOOTER = "corrected by 251 ns for each event, 1.60 us for a callback's two probes\n"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the demo with other costs."""
    session = replace(fusetools.open(DEMO).session, event_cost_ns=251, pair_cost_ns=1602)
    output = tmp_path_factory.mktemp("measured") / "perf.data"
    _core.merge([DEMO], output, encoded(session))
    return str(output)


@pytest.mark.parametrize("command", ["hist", "stages"])
def test_subtracted_cost_is_reported(run: Invoke, measured: str, command: str) -> None:
    text = run(command, "-i", measured, "lookup", "--corrected").stdout
    assert FOOTER in text and "\n  not subtracted: stacks\n" in text
    assert "probe cost" not in text and "recording adds" not in text
    plain = run(command, "-i", measured, "lookup").stdout
    assert "corrected" not in plain and plain.splitlines()[2] != text.splitlines()[2]
    answer = held(command, run(command, "-i", measured, "--corrected", "--json").stdout)
    costs = {"event_ns": 251, "pair_ns": 1602, "remaining": ["stacks"]}
    assert answer["recording"]["corrected"] == costs
    answer = held(command, run(command, "-i", measured, "--json").stdout)
    assert answer["recording"]["corrected"] is None


def test_the_clients_own_form(run: Invoke, measured: str) -> None:
    said = run("hist", "-i", measured, "--style", "cvmfs", "--corrected")
    assert FOOTER in said.stderr
    assert said.stdout != run("hist", "-i", measured, "--style", "cvmfs").stdout


@pytest.mark.parametrize("command", ["hist", "stages"])
def test_subtracted_cost_is_not_shown_as_overhead(run: Invoke, measured: str, command: str) -> None:
    wrong = run(command, "-i", measured, "--corrected", "--overhead")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "--corrected excludes --overhead: use one of them" in wrong.stderr


@pytest.mark.parametrize("command", ["hist", "stages"])
def test_a_recording_without_costs_says_so(run: Invoke, command: str, tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    session = replace(fusetools.open(DEMO).session, event_cost_ns=None, pair_cost_ns=None)
    _core.merge([DEMO], path, encoded(session))
    wrong = run(command, "-i", str(path), "--corrected")
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert wrong.stderr == (
        f"fusetools: cannot correct the durations of {path}\n"
        "  why: what an event and a probe cost was not measured while it was recorded\n"
        "  fix: fusetools record -- WORKLOAD\n"
    )


def test_kernel_functions_are_as_recorded(tmp_path: Path) -> None:
    path = data.unpack("kernels/6.1.0-56-amd64/recording/perf.data.zst", tmp_path / "perf.data")
    recording = fusetools.open(path)
    recording._source.session = replace(recording.session, event_cost_ns=251)
    said = "kernel functions are as recorded, not corrected\n"
    result = recording.hist("lookup", corrected=True)
    assert said in render(result) and "  not subtracted: " in render(result)
    assert "kernel probes" in render(result)
    assert said not in render(recording.hist("lookup"))
    assert said not in render(recording.hist("lookup", layers=("request",), corrected=True))


def test_unmeasured_costs_are_named() -> None:
    rest = ("the probes of callbacks", "stacks", "function_graph", "kernel probes")
    said = corrected(Corrected(251, None, rest))
    assert said[0] == "corrected by 251 ns for each event"
    assert all(len(line) <= 80 for line in said)
    said = corrected(Corrected(None, 1602, ("events",)))
    assert said == [
        "corrected by 1.60 us for a callback's two probes",
        "  not subtracted: events",
    ]
    assert corrected(Corrected(251, 1602)) == [FOOTER.rstrip()]
    assert corrected(None) == []
