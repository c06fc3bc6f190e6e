"""Merging by hand tells how far it is."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusetools.cli import main
from fusetools.errors import Error
from fusetools.record import merging


class SlowCore:
    """Writes half of the inputs' size, and takes its time."""

    CoreError = RuntimeError

    def describe(self, path: str) -> dict:
        raise self.CoreError("a trace.dat")

    def merge(self, inputs: list[str], output: str, session: str) -> dict:
        target = Path(output)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        partial.write_bytes(bytes(500))
        time.sleep(1.7)
        partial.replace(target)
        return {"records": 3, "warnings": ["one thing"]}


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "core", SlowCore)
    (tmp_path / "in.data").write_bytes(bytes(1000))
    told: list[float] = []
    merged = merging.merge([str(tmp_path / "in.data")], str(tmp_path / "out"), told.append)
    assert merged == merging.Merged(3, ("one thing",))
    # From the first second on, twice a second.
    assert told == [0.5, 0.5]


def test_the_command_tells_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "core", SlowCore)
    (tmp_path / "in.data").write_bytes(bytes(1000))
    command = ["merge", str(tmp_path / "in.data"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0
    assert done.output == f"warning: one thing\n{tmp_path / 'out'}: 3 records\n"
    done = CliRunner().invoke(main, [*command, "--json"])
    assert json.loads(done.output) == {"records": 3, "warnings": ["one thing"]}


def test_an_input_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"in\.data"):
        merging.merge([str(tmp_path / "in.data")], str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
