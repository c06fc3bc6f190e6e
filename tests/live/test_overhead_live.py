"""`fusetools overhead` on this host, compared with the workload's clock and the mount's
counters."""

from __future__ import annotations

import pickle
import statistics
import subprocess
import sys
from pathlib import Path

import affairs
import pytest
from recording import run
from sample import BUILD, Mounter
from schemas import held
from script import needs_perf

from fusetools.render.json.answer import render as to_json
from fusetools.results.overhead import Overhead

pytestmark = pytest.mark.live


# Run it in a process without other threads, like the command's: a thread of pytest's could get the
# signal of the workload's end.
MEASURE = """
import pickle, sys
from fusetools.experiments.overhead import overhead
from fusetools.plan.options import Options, Workload

mount, rounds, *command = sys.argv[1:]
with open("log", "wb") as log:
    options = Options(Workload(tuple(command), log.fileno()), (mount,))
    result = overhead(options, int(rounds), [], lambda *_: None, ["all"])
sys.stdout.buffer.write(pickle.dumps(result))
"""


def test_each_run_is_timed(sample_mount: Mounter, tmp_path: Path) -> None:
    """Compare it with the workload's notes of its own runs, and the file system's count of calls.

    A run's time is the workload's own time and little more, without the seconds that a recording
    needs to begin and to end. Load may add to it: in one of 3 rounds it adds less than half a
    second.
    """
    needs_perf()
    mount = sample_mount()
    work = f"{BUILD / 'workload'} stat 503 {mount.path / 'dir-00/file-000'}"
    command = ("sh", "-c", f"date +%s%N >> noted; {work}; date +%s%N >> noted")
    before = mount.affairs()
    rounds = 3
    measure = [sys.executable, "-c", MEASURE, str(mount.path), str(rounds), *command]
    done = subprocess.run(measure, cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    result: Overhead = pickle.loads(done.stdout)
    calls = affairs.difference(mount.affairs(), before)
    (cost,) = result.costs
    held("overhead", to_json("overhead", result))

    # One run to warm up, then runs without and with recording, in turn.
    times = [int(line) / 1e9 for line in (tmp_path / "noted").read_text().split()]
    own = [end - begin for begin, end in zip(times[::2], times[1::2])]
    assert len(own) == 1 + 2 * rounds
    for seconds, noted in ((result.plain_seconds, own[1::2]), (cost.seconds, own[2::2])):
        assert len(seconds) == rounds
        more = [ours - theirs for ours, theirs in zip(seconds, noted)]
        assert 0 < min(more) < 0.5, (seconds, noted)
    ratios = [probed / plain for probed, plain in zip(cost.seconds, result.plain_seconds)]
    shown = statistics.median(cost.seconds) / statistics.median(result.plain_seconds)
    assert cost.slow_down.median == min(max(shown, min(ratios)), max(ratios))
    assert (cost.slow_down.low, cost.slow_down.high) == (min(ratios), max(ratios))

    # Every run was the same, and was recorded completely.
    assert calls["cvmfs_lookup"].total == 2 * len(own) * 503
    assert not result.lost
    # Sent, ended, and entry and return of the callback, for each lookup
    assert cost.events > 4 * 2 * 503
    assert result.pair_ns is not None and result.inside_ns is not None
    assert 0 < result.inside_ns < result.pair_ns < 100_000
    assert not list(tmp_path.glob(".*"))  # the recordings are removed


def test_a_workload_that_fails_is_one_line(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    workload = ("sh", "-c", "echo it broke >&2; exit 3")
    done = run("overhead", "--mount", mount.path, "--", *workload, cwd=tmp_path)
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
    done = run("overhead", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr and "Traceback" not in done.stderr
