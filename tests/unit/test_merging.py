"""Merging by hand reports its progress."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from schemas import held

from fusetools.cli import main
from fusetools.errors import Error
from fusetools.record import manual_merge
from fusetools.results.merge import Merged

DEMO = Path(__file__).parents[2] / "samples" / "recordings" / "demo.data"


class SlowCore:
    """Write half of the inputs' size, and continue after two reports."""

    CoreError = RuntimeError
    told = threading.Semaphore(0)
    wanted = 0

    def describe(self, path: str) -> dict[str, object]:
        raise self.CoreError("a trace.dat")

    def merge(self, inputs: list[str], output: str, session: str) -> dict[str, object]:
        target = Path(output)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        partial.write_bytes(bytes(500))
        for _ in range(self.wanted):
            assert self.told.acquire(timeout=120), "no progress is told"
        partial.replace(target)
        return {"records": 3, "warnings": ["one thing"]}


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first second on, twice a second; not earlier on a busy machine."""

    class Core(SlowCore):
        wanted = 2

    monkeypatch.setattr(manual_merge, "native", Core())
    (tmp_path / "in.data").write_bytes(bytes(1000))
    told: list[tuple[float, float]] = []
    begun = time.monotonic()

    def tell(share: float) -> None:
        told.append((share, time.monotonic() - begun))
        Core.told.release()

    merged = manual_merge.merge([str(tmp_path / "in.data")], str(tmp_path / "out"), tell)
    assert merged == Merged(3, ("one thing",))
    (first, soon), (second, later) = told[:2]
    assert (first, second) == (0.5, 0.5)
    assert soon >= 1.0 and later >= 1.5


def test_the_command_tells_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manual_merge, "native", SlowCore())
    (tmp_path / "in.data").write_bytes(bytes(1000))
    command = ["merge", str(tmp_path / "in.data"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0
    assert done.output == f"warning: one thing\n{tmp_path / 'out'}: 3 records\n"
    done = CliRunner().invoke(main, [*command, "--json"])
    said = held("merge", done.output)
    assert (said["records"], said["warnings"]) == (3, ["one thing"])


def test_an_input_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"in\.data"):
        manual_merge.merge([str(tmp_path / "in.data")], str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_version_is_what_perf_prints(tmp_path: Path) -> None:
    def merged(version: str) -> str:
        command = ["merge", str(DEMO), "--for-perf", version, "-o", str(tmp_path / "out")]
        return CliRunner().invoke(main, command).output

    lines = {merged(text) for text in ("5.10", "5.10.262", "perf version 5.10.g1234")}
    assert len(lines) == 1 and "CPU_MAP" in lines.pop()
    assert "CPU_MAP" not in merged("6.1.187")
    assert "no version" in merged("new")
    assert "--for-perf 4.8" in merged("3.10.0-1160.el7")
