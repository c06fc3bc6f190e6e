"""`fusetools count --live` on this host: its counts equal the file system's own."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from recording import run
from sample import BUILD, Mounter
from script import needs_perf

pytestmark = pytest.mark.live

TRACEFS = Path("/sys/kernel/tracing")


def test_counts_are_the_sample_s_own(sample_mount: Mounter, tmp_path: Path) -> None:
    needs_perf()
    mount = sample_mount()
    workload = f"{BUILD / 'workload'} mixed --processes 8 {mount.path} > workload.json; exit 7"
    begun = time.monotonic_ns()
    options = ("--mount", mount.path, "--json")
    done = run("count", "--live", *options, "--", "sh", "-c", workload, cwd=tmp_path)
    elapsed = time.monotonic_ns() - begun
    assert done.returncode == 7, done.stderr
    result = json.loads(done.stdout)
    counted: dict[str, Counter[str]] = {"daemon": Counter(), "request": Counter()}
    for row in result["counts"]:
        counted.setdefault(row["layer"], Counter())[row["function"]] = row["count"]
    own = mount.callbacks()
    assert counted["daemon"] == own
    flushes = counted["request"].pop("FUSE_FLUSH", 0)  # refused, as there is no callback
    assert flushes <= 8
    named = {name.replace("cvmfs_", "FUSE_").upper(): n for name, n in own.items() if n}
    for forget in ("FUSE_FORGET", "FUSE_FORGET_MULTI"):  # requests without an answer
        named.pop(forget, None)
    assert counted["request"] == Counter(named)
    # Return the additional time of 40 calls, as the median of 15 rounds.
    assert 0 < 8 * 40 * result["recording"]["probe_cost_ns"] < elapsed
    assert [path.name for path in tmp_path.iterdir()] == ["workload.json"]
    assert str(mount.path) not in (TRACEFS / "uprobe_events").read_text()


def test_other_daemons_of_the_same_library_are_not_counted(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    """New threads are neither left out nor counted for others."""
    mount, other = sample_mount(), sample_mount()
    both = " & ".join(
        f"{BUILD / 'workload'} mixed --processes 4 --few {one.path} > {number}.json"
        for number, one in enumerate((mount, other))
    )
    command = ("--mount", mount.path, "--json", "--", "sh", "-c", f"{both}; wait")
    done = run("count", "--live", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "are counted, too" not in done.stderr
    counted = Counter(
        {
            row["function"]: row["count"]
            for row in json.loads(done.stdout)["counts"]
            if row["layer"] == "daemon"
        }
    )
    assert counted == mount.callbacks()
    assert sum(other.callbacks().values()) > 1000


def test_count_reports_its_own_cost(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    workload = ("stat", "-f", mount.path)
    done = run("count", "--live", "--mount", mount.path, "--", *workload, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "counted in the kernel" in done.stdout
    assert "overhead: " in done.stdout and " in each daemon call" in done.stdout
    assert "FUSE_STATFS" in done.stdout and "cvmfs_statfs" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--live needs a workload"),
        (("--pid", "3", "--", "true"), "--live counts all processes"),
        (("--", "no-such-command"), "there is no command no-such-command"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run("count", "--live", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr
