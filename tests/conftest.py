from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fusetools import cli, recording


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """fake(core, …): commands in an empty folder with recordings a.data …, answered by these."""
    monkeypatch.chdir(tmp_path)

    def use(*cores):
        by_name = {}
        for name, core in zip(("perf.data", "other.data"), cores):
            Path(name).touch()
            by_name[name] = core

        class Several:
            CoreError = cores[0].CoreError

            def describe(self, path):
                return by_name[path].describe(path)

            def scan(self, path, *question):
                return by_name[path].scan(path, *question)

            def columns(self, path, *question):
                return by_name[path].columns(path, *question)

            def graph(self, path, *question):
                return by_name[path].graph(path, *question)

        monkeypatch.setattr(recording, "core", Several)
        return cores[0]

    return use


@pytest.fixture
def run():
    """run("hist", "lookup") -> click's result; anything but an exit is raised."""

    def invoke(*args: str) -> Result:
        result = CliRunner().invoke(cli.main, args)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke
