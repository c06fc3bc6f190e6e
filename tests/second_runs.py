"""Second runs (`pytest --second-runs`): a test of a kernel counts as failed only if it fails again.

A test marked `live`, `filesystems` or `vm` shares a kernel and its CPUs with whatever else runs.
One that fails is run twice more, alone, once all other tests have ended: also those that hold the
lock target/pure.lock (`make test`). If both runs pass, the test is flaky: it is named at the end
and in target/flaky.json, and the exit status is not its. If one of them fails, the test has failed.
Other tests get no second run.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Generator

import pytest

MARKERS = ("live", "filesystems", "vm")
RUNS = 2
MOST = 8  # more failures are not flaky
LIMIT = 1800.0  # limit in seconds of one run; each test has a shorter limit of its own
NOTED = "failed"  # the option that notes failures
OPTIONS = ("kernels", NOTED)  # for tests in guests, whose conftest.py defines the first; for all
NOTE = "flaky.json"
BESIDE = "pure.lock"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-runs", action="store_true", help="run a live test that fails twice more, alone"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--second-runs") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondRuns(config), "second-runs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the name by which a test is run alone, "" if it gets no second run."""
    report = yield
    name = ""
    if any(item.get_closest_marker(marker) for marker in MARKERS):
        name = item.nodeid
        if group := item.get_closest_marker("xdist_group"):  # xdist appends it to the name
            name = name.removesuffix(f"@{group.args[0]}")
    report.__dict__["second_run"] = name
    return report


class SecondRuns:
    """Only the process that gets the reports of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: dict[str, str] = {}  # name -> reason
        self.reports = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name: str = getattr(report, "second_run", "")
        if report.failed and name:
            self.reports += 1
            self.failed.setdefault(name, reason(report))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        yield  # the summary is printed, and xdist's processes have ended
        flaky: dict[str, str] = {}
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and self.failed:
            flaky = self._again()
            # Failures of other tests, and of collection
            others = session.testsfailed - self.reports
            cut = session.shouldfail or session.shouldstop  # the remaining tests were not run
            if len(flaky) == len(self.failed) and not others and not cut:
                session.exitstatus = pytest.ExitCode.OK
        for name, why in flaky.items():
            print(f"flaky: {name}: {why}")
        target = self.config.rootpath / "target"
        target.mkdir(exist_ok=True)
        rows = [{"test": name, "reason": why} for name, why in flaky.items()]
        (target / NOTE).write_text(json.dumps(rows, indent=1) + "\n")

    def _again(self) -> dict[str, str]:
        """Run failed tests alone. Return the flaky ones."""
        print()
        if len(self.failed) > MOST:
            print(f"second runs: none, as more than {MOST} tests failed")
            return {}
        lock = self.config.rootpath / "target" / BESIDE
        lock.parent.mkdir(exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
        return {name: why for name, why in self.failed.items() if self._passes(name)}

    def _passes(self, name: str) -> bool:
        options = [
            f"--{option}={value}"
            for option in OPTIONS
            if (option == NOTED or name.startswith("tests/vm/"))
            and (value := self.config.getoption(option, None)) is not None
        ]
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "--quiet", *options, name]
        for number in range(1, RUNS + 1):
            print(f"second runs: {name}, {number} of {RUNS}: ", end="", flush=True)
            try:
                done = subprocess.run(
                    command,
                    cwd=self.config.rootpath,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    timeout=LIMIT,
                )
            except subprocess.TimeoutExpired:
                print(f"no end within {LIMIT:g} s", flush=True)
                return False
            if done.returncode or " passed" not in done.stdout:
                print(f"failed\n{done.stdout}", flush=True)
                return False
            print("passed", flush=True)
        return True


def reason(report: pytest.TestReport) -> str:
    """Return the first line of a test's error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return (text.strip().splitlines() or ["no reason"])[0]
