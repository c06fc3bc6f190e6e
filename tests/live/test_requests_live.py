"""slow, show, errors, queue and export of live recordings, against the sample file system."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trace_format
from conftest import BUILD, Mounter, SampleMount

import fusetools
from fusetools.render import requests as requests_text

pytestmark = pytest.mark.live
WORKLOAD = BUILD / "workload"
MISSING, PRESENT, XATTRS = 101, 53, 97  # prime


def record(output: Path, mount: SampleMount, script: str) -> tuple[fusetools.Recording, list[Any]]:
    """Records a shell script on the mount; returns what its programs printed as JSON, too."""
    if not shutil.which("perf"):
        pytest.skip("this host has no perf")
    command = [sys.executable, "-m", "fusetools", "record", "--mount", mount.path, "-o", output]
    command += ["--", "sh", "-c", script]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return fusetools.open(output), said


def test_errors_are_the_workloads_own(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(error=("getxattr=EIO:10%",))
    before = mount.counters()
    recording, said = record(
        tmp_path / "perf.data",
        mount,
        f"{WORKLOAD} stat {MISSING} {mount.path}/none-1 {mount.path}/none-2;"
        f"{WORKLOAD} stat {PRESENT} {mount.path}/big;"
        f"{WORKLOAD} getxattr {XATTRS} {mount.path}/big",
    )
    truth: Counter[str] = Counter()
    for one in said:
        truth.update(one["errors"])
    assert truth["ENOENT"] == MISSING and 0 < truth["EIO"] < XATTRS
    after = mount.counters()
    found = {o.operation: o for o in recording.errors().operations}
    assert found["lookup"].negative == MISSING == found["lookup"].absent
    assert found["lookup"].requests == MISSING + PRESENT + XATTRS
    assert found["lookup"].errors == ()
    assert found["getxattr"].errors == (("EIO", truth["EIO"]),)
    name = "samplefs.n_error_getxattr"
    assert after[name] - before[name] == truth["EIO"]
    assert found["getattr"].failed == 0


def test_paths_and_inodes_are_the_file_systems(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    recording, _ = record(
        tmp_path / "perf.data", mount, f"find {mount.path}/dir-00 {mount.path}/dir-01 -size +1M"
    )
    result = recording.slowest(most=10_000)
    assert not result.guessed
    assert not result.facts.losses.lost
    about: dict[str, int] = {}
    for r in result.requests:
        assert r.whole and r.path is not None, r
        if r.inode is not None and r.operation in ("lookup", "getattr", "opendir"):
            assert about.setdefault(r.path, r.inode) == r.inode
    files = sum(len(files) for _, _, files in os.walk(mount.tree / "dir-00"))
    assert len(about) > files > 100
    for path, inode in about.items():
        assert inode == 1 if not path else os.lstat(mount.path / path).st_ino == inode, path
    assert {path.partition("/")[0] for path in about} >= {"dir-00", "dir-01"}


def test_a_delay_makes_a_request_slow(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(delay=("read=30ms:2%",))
    recording, _ = record(tmp_path / "perf.data", mount, f"{WORKLOAD} read 101 {mount.path}/big")
    delayed, others = (lambda found: (found[:2], found[2:]))(
        recording.slowest("read", most=10).requests
    )
    for r in delayed:
        assert r.duration > 30_000_000 and r.path == "big" and r.answered == 4096
        stages = dict(r.stages)
        assert stages["daemon"] >= 30_000_000 > 10 * (r.duration - stages["daemon"])
        assert r.meanwhile is not None and r.meanwhile.blocked is not None
        # It sleeps until 60 us before the end.
        assert r.meanwhile.blocked == pytest.approx(29_940_000, rel=0.05)
        calls = {name: ns for name, _, ns in r.meanwhile.syscalls}
        assert calls["clock_nanosleep"] >= 29_900_000
        shown = recording.show(r.unique or 0)
        assert any("clock_nanosleep" in moment.daemon for moment in shown.moments)
    assert all(r.duration < 30_000_000 for r in others)
    assert recording.slowest("read", most=500).requests[:2] == tuple(delayed)


def test_a_request_without_an_answer_stands_first(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(delay=("read=3s",))
    script = f"{WORKLOAD} stat 23 {mount.path}/big; head -c 1 {mount.path}/big & sleep 1"
    recording, _ = record(tmp_path / "perf.data", mount, script)
    result = recording.slowest(most=3)
    first = result.requests[0]
    assert (first.operation, first.fate, first.path) == ("read", "unfinished", "big")
    assert 500_000_000 < first.duration < 3_000_000_000 and first.stages == ()
    assert first.meanwhile is not None
    assert [name for name, *_ in first.meanwhile.syscalls] == ["clock_nanosleep"]
    said = " ".join(requests_text.slowest(result).split())
    assert "not answered, with the daemon" in said
    assert recording.show(first.unique or 0).moments


CALLERS = 8


def queue_of(mount: SampleMount, output: Path, callers: int = CALLERS, under: str = "") -> Any:
    work = f"{under} {WORKLOAD} stat 23 {mount.path}/big > /dev/null"
    recording, _ = record(output, mount, " & ".join([work] * callers) + " & wait")
    queue = recording.queue()
    assert not queue.facts.losses.lost
    (found,) = queue.mounts
    return found


def test_one_thread_is_too_few_for_eight_callers(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount("--threads", "1", delay=("lookup=2ms",))
    found = queue_of(mount, tmp_path / "one.data")
    assert found.threads == found.whole.most_busy == 1
    # Seven wait while one is served.
    assert found.whole.most_queued in (CALLERS - 1, CALLERS)
    assert found.whole.mean_queued > 0.6 * (CALLERS - 1)
    assert found.share_short > 0.7
    assert "is short of threads:" in requests_text.verdict(found)[0]
    mount.clean()

    mount = sample_mount("--threads", "8", delay=("lookup=2ms",))
    found = queue_of(mount, tmp_path / "eight.data")
    assert 4 <= found.threads <= CALLERS + 1
    # On a busy machine they wait for a CPU, but not for a thread.
    assert found.share_short < 0.1 and found.whole.mean_queued < 0.3 * (CALLERS - 1)
    assert "is short of threads:" not in requests_text.verdict(found)[0]
    mount.clean()


def test_one_thread_is_enough_for_one_caller(sample_mount: Mounter, tmp_path: Path) -> None:
    """Also where both have the same CPU, and the caller takes it from who has replied to it."""
    mount = sample_mount("--threads", "1")
    apart = queue_of(mount, tmp_path / "apart.data", callers=1)
    together = queue_of(mount, tmp_path / "together.data", 1, " ".join(mount.pin()))
    for found in (apart, together):
        assert found.whole.most_queued == 1 and found.share_short < 0.1
        assert "is short of threads:" not in requests_text.verdict(found)[0]


def test_work_after_the_reply_keeps_a_thread(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount("--threads", "1", delay=("lookup=2ms:after",))
    found = queue_of(mount, tmp_path / "perf.data", callers=2)
    # Replied to at once, the next request waits until the thread is done with the one before.
    assert found.whole.most_busy == 1 and found.whole.mean_busy > 0.8
    assert found.share_short > 0.7


def test_the_trace_of_many_callers(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount("--kernel-cache=1")
    recording, _ = record(tmp_path / "perf.data", mount, f"{WORKLOAD} mixed {mount.path}")
    exported = recording.export(str(tmp_path / "trace.json"), "perfetto")
    trace = json.loads((tmp_path / "trace.json").read_text())
    stories = recording.stories()
    assert exported.requests == len(stories.begin)
    trace_format.check(trace["traceEvents"])
    phases = Counter(e["ph"] for e in trace["traceEvents"])
    begun = (stories.begin > 0) & ((stories.waits == 1) | (stories.syscall >= 0))
    served = int((begun & (stories.daemon_tid >= 0) & (stories.read > 0)).sum())
    assert phases["s"] == phases["f"] == served
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X" and "args" in e]
    on_daemon = [e for e in spans if e["pid"] == mount.pid]
    done = (stories.callback_return > 0) | (stories.end > 0)
    assert len(on_daemon) == int(((stories.read > 0) & done).sum())
    waited = int((stories.waits[stories.end > 0] == 1).sum())
    assert len(spans) - len(on_daemon) + phases["b"] == int(
        ((stories.begin > 0) & (stories.end > 0)).sum()
    )
    assert len(spans) - len(on_daemon) <= waited
