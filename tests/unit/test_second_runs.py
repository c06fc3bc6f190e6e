"""The suite's rule: a live test fails if it fails again, alone; any other test fails
immediately."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MARKERS = "live filesystems vm"
# A test that fails in its first runs, counted in a file.
COUNTED = """
import pathlib, pytest

def fails(name, runs, passes=None):
    count = pathlib.Path(__file__).with_name(name)
    seen = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (seen + 1))
    assert seen >= runs or seen == passes, f"{name} failed\\nin run {seen}"
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the time
    markers = "\n  ".join(MARKERS.split())
    pytester.makeini(f"[pytest]\npythonpath = {TESTS}\nmarkers =\n  {markers}\n")
    pytester.makeconftest('pytest_plugins = ["second_runs"]')
    return pytester


def run(
    suite: pytest.Pytester, tests: str, *options: str
) -> tuple[pytest.RunResult, dict[str, str]]:
    """Return pytest's exit status, and why each flaky test had failed."""
    suite.makepyfile(test_it=COUNTED + tests)
    done = suite.runpytest_subprocess(*options)
    note = suite.path / "target/flaky.json"
    rows = json.loads(note.read_text()) if note.exists() else []
    return done, {row["test"].removeprefix("test_it.py::"): row["reason"] for row in rows}


def counted(suite: pytest.Pytester) -> dict[str, int]:
    """Return how often each test was run."""
    return {path.name: len(path.read_text()) for path in suite.path.glob("n_*")}


@pytest.mark.parametrize("workers", [(), ("-pxdist.plugin", "-n2", "--dist", "loadgroup")])
def test_a_test_that_passes_twice_alone_is_flaky(
    suite: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    tests = """
@pytest.fixture
def after():
    yield
    fails("n_after", 1)
@pytest.mark.vm
@pytest.mark.xdist_group("some")
@pytest.mark.parametrize("name", ["a kernel"])
def test_vm(name): fails("n_vm", 1)
@pytest.mark.live
def test_after(after): pass
def test_good(): pass
"""
    ini = suite.path / "tox.ini"
    ini.write_text(ini.read_text() + "  xdist_group\n")
    done, flaky = run(suite, tests, "--second-runs", *workers)
    assert done.ret == 0
    why = "AssertionError: {} failed"
    assert flaky == {"test_vm[a kernel]": why.format("n_vm"), "test_after": why.format("n_after")}
    for name, reason in flaky.items():
        assert f"flaky: test_it.py::{name}: {reason}" in done.outlines
    assert counted(suite) == {"n_vm": 3, "n_after": 3}


def test_a_second_run_waits_for_what_runs_beside_it(suite: pytest.Pytester) -> None:
    tests = """
@pytest.mark.live
def test_flaky():
    fails("n_flaky", 1)
    assert pathlib.Path("ended").exists()
"""
    (suite.path / "target").mkdir()
    beside = "until [ -e n_flaky ]; do sleep 0.01; done; sleep 2; touch ended"
    lock = ["flock", "--close", "target/pure.lock", "sh", "-c", beside]
    with subprocess.Popen(lock, cwd=suite.path):
        done, flaky = run(suite, tests, "--second-runs")
    assert (done.ret, list(flaky)) == (0, ["test_flaky"])


def test_a_test_that_fails_again_has_failed(suite: pytest.Pytester) -> None:
    tests = """
@pytest.mark.live
def test_again(): fails("n_again", 2)
@pytest.mark.live
def test_third_run(): fails("n_third", 3, passes=1)
@pytest.mark.filesystems
def test_flaky(): fails("n_flaky", 1)
"""
    done, flaky = run(suite, tests, "--second-runs")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert flaky == {"test_flaky": "AssertionError: n_flaky failed"}
    assert counted(suite) == {"n_again": 2, "n_third": 3, "n_flaky": 3}
    done.stdout.fnmatch_lines(["E * n_again failed", "E *in run 1"])  # why it failed again


def test_a_pure_test_gets_no_second_run(suite: pytest.Pytester) -> None:
    tests = """
def test_pure(): fails("n_pure", 1)
@pytest.mark.live
def test_flaky(): fails("n_flaky", 1)
"""
    done, flaky = run(suite, tests, "--second-runs")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert list(flaky) == ["test_flaky"]
    assert counted(suite) == {"n_pure": 1, "n_flaky": 3}


def test_a_test_that_did_not_run_has_not_passed(suite: pytest.Pytester) -> None:
    tests = """
@pytest.mark.live
def test_flaky(): fails("n_flaky", 1)
def test_not_run(): pass
"""
    done, flaky = run(suite, tests, "--second-runs", "-x")
    assert (done.ret, list(flaky)) == (pytest.ExitCode.TESTS_FAILED, ["test_flaky"])


def test_many_that_fail_get_no_second_run(suite: pytest.Pytester) -> None:
    tests = """
@pytest.mark.live
@pytest.mark.parametrize("number", range(9))
def test_bad(number): fails(f"n_{number}", 1)
"""
    done, flaky = run(suite, tests, "--second-runs")
    assert (done.ret, flaky) == (pytest.ExitCode.TESTS_FAILED, {})
    assert "second runs: none, as more than 8 tests failed" in done.outlines
    assert set(counted(suite).values()) == {1}


def test_strictly_there_are_none(suite: pytest.Pytester) -> None:
    done, flaky = run(suite, "@pytest.mark.live\ndef test_flaky(): fails('n_flaky', 1)\n")
    assert (done.ret, flaky) == (pytest.ExitCode.TESTS_FAILED, {})
    assert counted(suite) == {"n_flaky": 1}
    assert not (suite.path / "target").exists()
