from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fixtures import Core, Driver, Fake, Invoke
from hypothesis import settings

from fusetools import cli
from fusetools import core as binding

# By default Hypothesis fails an example that takes 200 ms, as any may on a busy machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# The suite's rules and their tests.
pytest_plugins = ["second_runs", "limits", "pytester"]

FILESYSTEMS = Path(__file__).parent / "filesystems"
# Timeout in seconds of a test in a guest: two tries of tests/vm/vm.py with its limit WAITING.
GUEST = 1500.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passed", metavar="FILE", help="write to it which tests passed")
    parser.addoption("--failed", metavar="FILE", help="append to it which tests failed, and why")
    parser.addoption("--but", metavar="FILE", help="run all but those that it names")


def pytest_configure() -> None:
    # Behind `nohup` or `&` SIGINT is ignored, also by a test's children: Ctrl-C would not end them.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Behind `nohup` SIGHUP is ignored, too. No program inherits a handler: it ends them, not us.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if hasattr(config, "workerinput"):  # xdist's main process reports the tests of all
        return
    if path := config.getoption("--passed"):
        passed = [report.nodeid for report in terminalreporter.stats.get("passed", ())]
        Path(path).write_text(json.dumps(passed))
    if path := config.getoption("--failed"):
        from second_runs import reason  # pytest prepares the asserts of a plugin that it imports

        with Path(path).open("a") as file:
            for kind in "failed", "error":
                for report in terminalreporter.stats.get(kind, ()):
                    print(f"failed: {report.nodeid}: {reason(report)}", file=file)


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (path := config.getoption("--but")) and Path(path).exists():
        passed = set(json.loads(Path(path).read_text()))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    for item in items:
        if "driver" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if FILESYSTEMS in item.path.parents:
            item.add_marker("filesystems")
        if item.get_closest_marker("vm") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(GUEST))
        # Groups for pytest --dist loadgroup. Only one recording runs at a time on this host, beside
        # tests that look at mounts and record nothing.
        # Tests of real file systems mount under mounts.alone(), then look at the recordings.
        # Tests of one file in a virtual machine share what one of them recorded.
        if item.get_closest_marker("filesystems"):
            item.add_marker(pytest.mark.xdist_group("filesystems"))
        elif item.get_closest_marker("unrecorded"):
            item.add_marker(pytest.mark.xdist_group("unrecorded"))
        elif item.get_closest_marker("live"):
            item.add_marker(pytest.mark.xdist_group("live"))
        elif item.get_closest_marker("vm"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(autouse=True, scope="session")
def _no_width() -> None:
    """Readline, which pytest imports, exports the terminal's width past os.environ: output would be
    wrapped."""
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.chdir(tmp_path)

    def use(*cores: Core) -> Core:
        by_name: dict[str, Core] = {}
        for name, core in zip(("perf.data", "other.data"), cores):
            Path(name).touch()
            by_name[name] = core

        class Several:
            CoreError = cores[0].CoreError
            matching = staticmethod(binding.native.matching)
            operation_of = staticmethod(binding.native.operation_of)
            Catalogue, Probe = binding.native.Catalogue, binding.native.Probe

            def describe(self, path: str) -> Any:
                return by_name[path].describe(path)

            def scan(self, path: str, *question: Any) -> Any:
                return by_name[path].scan(path, *question)

            def stages(self, path: str, *question: Any) -> Any:
                return by_name[path].stages(path, *question)

            def errors(self, path: str, *question: Any) -> Any:
                return by_name[path].errors(path, *question)

            def graph(self, path: str, *question: Any) -> Any:
                return by_name[path].graph(path, *question)

        monkeypatch.setattr(binding, "native", Several())
        return cores[0]

    return use


@pytest.fixture
def run() -> Invoke:
    def invoke(*args: str) -> Result:
        # Return a function that runs a command; defects of fusetools raise.
        result = CliRunner().invoke(cli.main, args, env={"FUSETOOLS_DEBUG": "1"})
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Return headless Chromium, driven by Selenium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    chromedriver = shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("no chromium and chromedriver here")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Nothing is requested from the network, not even if there is a proxy.
    os.environ["SE_OFFLINE"] = "true"
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    try:
        yield browser
    finally:
        browser.quit()
