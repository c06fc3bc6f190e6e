"""`fusetools overhead` on this host, against hyperfine and the file system's own counters."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import affairs
import pytest
from conftest import BUILD, Mounter

from fusetools.measure import overhead as measured
from fusetools.plan.request import Request

pytestmark = pytest.mark.live
FUSETOOLS = [sys.executable, "-m", "fusetools"]


def hyperfine(directory: Path, command: list[str], prefix: list[str]) -> list[float]:
    """Seconds of five runs, by hyperfine, which may itself be the workload of a recording."""
    out = directory / "hyperfine.json"
    timed = ["hyperfine", "-N", "--warmup", "1", "--runs", "5", "--export-json", str(out)]
    done = subprocess.run(
        [*prefix, *timed, " ".join(command)], cwd=directory, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(out.read_text())["results"]
    return list(result["times"])


@pytest.fixture
def undisturbed() -> Iterator[None]:
    """This process, and what it starts, go before all others on this host."""
    usual = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    yield
    os.sched_setscheduler(0, *usual)


def test_the_slow_down_is_hyperfines(
    sample_mount: Mounter, tmp_path: Path, undisturbed: None
) -> None:
    """hyperfine times the same workload, and is itself the workload of a recording."""
    for tool in ("perf", "hyperfine"):
        if not shutil.which(tool):
            pytest.skip(f"this host has no {tool}")
    mount = sample_mount(realtime=True)
    command = [str(BUILD / "workload"), "stat", "2003", str(mount.path / "dir-00/file-000")]
    os.chdir(tmp_path)
    options = ["record", "--mount", str(mount.path), "-o", "hyperfine.data", "--"]
    prefix = [*FUSETOOLS, *options]
    # Before and after, for what changes on the host meanwhile.
    plain, probed = hyperfine(tmp_path, command, []), hyperfine(tmp_path, command, prefix)
    request = Request(mounts=(str(mount.path),), command=tuple(command), log="log")
    before = mount.affairs()
    result = measured.overhead(request, 6, [], lambda *_: None, ["all"])
    calls = affairs.difference(mount.affairs(), before)
    (cost,) = result.costs
    plain += hyperfine(tmp_path, command, [])
    probed += hyperfine(tmp_path, command, prefix)
    # The two intervals have to meet: ours, and what hyperfine's fastest and slowest runs allow.
    assert cost.slow_down.confidence > 0.95
    assert cost.slow_down.low <= max(probed) / min(plain), (cost, plain, probed)
    assert cost.slow_down.high >= min(probed) / max(plain), (cost, plain, probed)

    # Every run was the same, and was recorded whole.
    runs = 1 + 2 * 6
    assert calls["cvmfs_lookup"].total == 2 * runs * 2003
    assert len(result.plain) == len(cost.seconds) == 6
    assert not result.lost
    assert cost.events > 4 * 2 * 2003  # sent, ended and the callback's two ends, of each lookup
    assert cost.median > statistics.median(result.plain)
    assert result.pair_ns is not None and result.inside_ns is not None
    assert 0 < result.inside_ns < result.pair_ns < 100_000
    assert not list(tmp_path.glob(".*"))  # nothing is left of the recordings


def overhead(*arguments: object, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [*FUSETOOLS, "overhead", *map(str, arguments)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_a_workload_that_fails_is_one_line(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    done = overhead(
        "--mount", mount.path, "--", "sh", "-c", "echo it broke >&2; exit 3", directory=tmp_path
    )
    assert (done.returncode, done.stdout) == (1, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("fusetools: the workload failed with exit status 3: sh -c ")
    assert rest == ["  why: it broke"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--", "no-such-command"], 1, "there is no command no-such-command"),
        (["--repeat", "0", "--", "true"], 2, "--repeat"),
        (["--duration", "3", "--", "true"], 2, "--duration"),
        ([], 2, "WORKLOAD"),
    ],
)
def test_mistakes(arguments: list[str], status: int, said: str, tmp_path: Path) -> None:
    done = overhead(*arguments, directory=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr and "Traceback" not in done.stderr
