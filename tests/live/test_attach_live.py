"""`fusetools record --attach PID`: a running caller, compared with strace."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import HANGS, wait_until
from recording import Done, begin, record, session
from sample import Mounter, SampleMount
from script import events
from variants import variants

import fusetools
from fusetools import Filters

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]

CALLER = Path(__file__).with_name("caller.py")
# Callers: its old and new threads, its child, and the child's child.
OWN, CHILD, GRANDCHILD, PROGRAM = 3 * 101 + 401 + 2 * 103, 211, 307, 1


class Caller:
    """Run caller.py below a mount. Yield its pid and its child's, with strace beside it."""

    def __init__(self, mount: SampleMount, folder: Path) -> None:
        if shutil.which("strace") is None:
            pytest.skip("this host has no strace")
        self.path, self.go = mount.path / "dir-00" / "file-000", folder / "go"
        self.log = folder / "strace"
        self.process = subprocess.Popen(
            [sys.executable, CALLER, self.path, self.go], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.pid, self.child = self.process.pid, int(self.process.stdout.readline())
        wait_until(lambda: len(self.threads) == 4, "its threads")
        calls = ["-e", "trace=stat,newfstatat,statx", "-e", "signal=none", "-o", str(self.log)]
        of = [word for pid in (self.pid, self.child) for word in ("-p", str(pid))]
        self.strace = subprocess.Popen(["strace", "-f", *calls, *of], stderr=subprocess.DEVNULL)
        everybody = [*self.threads, Path(f"/proc/{self.child}")]
        wait_until(lambda: all(traced(task) for task in everybody), "strace")

    @property
    def threads(self) -> list[Path]:
        return list(Path(f"/proc/{self.pid}/task").iterdir())

    def calls(self) -> Counter[int]:
        """Return system calls by thread, as strace saw them, once all have ended."""
        self.process.wait(HANGS)
        self.strace.wait(HANGS)
        lines = [line for line in self.log.read_text().splitlines() if f'"{self.path}"' in line]
        return Counter(int(line.split()[0]) for line in lines)

    def end(self) -> None:
        self.go.touch()
        for process in (self.process, self.strace):
            process.kill()
            process.communicate()


def traced(task: Path) -> bool:
    return not re.search(r"^TracerPid:\s*0$", (task / "status").read_text(), re.MULTILINE)


@pytest.fixture
def caller(sample_mount: Mounter, tmp_path: Path) -> Iterator[tuple[SampleMount, Caller]]:
    mount = sample_mount()
    made = Caller(mount, tmp_path)
    yield mount, made
    made.end()


def test_calls_equal_straces(caller: tuple[SampleMount, Caller], tmp_path: Path) -> None:
    """The recording holds its threads and children, old and new, and no other process."""
    mount, of = caller
    before = mount.callbacks()
    process = begin(tmp_path, "--mount", mount.path, "--attach", of.pid)
    mount.workload("stat", 503, "dir-00/file-000")  # another process
    of.go.touch()
    done = Done(process)
    assert done.status == 0 and "none lost" in done.stderr, done.stderr
    seen, own = of.calls(), mount.callbacks() - before
    assert sum(seen.values()) == OWN + CHILD + GRANDCHILD + PROGRAM
    data = tmp_path / "perf.data"
    # Stock perf: each call that made a request, by thread.
    recorded = events(data)
    called: Counter[int] = Counter()
    entered: set[int] = set()
    for event in recorded:
        if event.name == "raw_syscalls:sys_enter":
            entered.add(event.tid)
        elif event.name == "fuse:fuse_request_send" and event.tid in entered:
            called[event.tid] += 1
            entered.remove(event.tid)
    assert called == seen
    recording = fusetools.open(data)
    assert counted(recording, "request") == own["cvmfs_getattr"] == 503 + sum(seen.values())
    assert counted(recording, "syscall") == sum(seen.values())
    mine = Filters(pids=(of.pid,))
    assert counted(recording, "syscall", mine) == OWN
    assert counted(recording, "syscall", Filters(pids=(of.child,))) == CHILD
    stacks = recording.stacks("off-cpu", layers=["syscall"]).stacks
    waited = {stack.split(";")[0] for stack in stacks}
    assert {Path(sys.executable).name[:15], "stat"} <= waited
    family = {e.pid for e in recorded if e.tid in seen}
    of_others = {e.pid for e in recorded if e.name.startswith("raw_syscalls:")} - family
    assert of_others == {mount.pid}


def counted(recording: fusetools.Recording, layer: str, filters: Filters | None = None) -> int:
    """Calls that made one or more getattr."""
    rows = recording.counts("getattr", [layer], filters).counts
    return sum(row.count for row in rows)


def test_it_goes_on_until_the_process_ends(sample_mount: Mounter, tmp_path: Path) -> None:
    """It records no longer than the process lives, whatever its children do."""
    mount = sample_mount()
    left = "sleep 1000 & echo $!; exec sleep 1000"
    with subprocess.Popen(["sh", "-c", left], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            recorder = begin(tmp_path, "--mount", mount.path, "--attach", process.pid)
            process.kill()
            process.wait()
            done = Done(recorder)
        finally:
            os.kill(child, signal.SIGKILL)
    assert done.status == 0, done.stderr
    facts = session(tmp_path / "perf.data")
    assert facts["workload_pid"] == process.pid and child in facts["descendants"]


@pytest.mark.parametrize("how", ["duration", "Ctrl-C"])
def test_the_process_goes_on_without_it(sample_mount: Mounter, tmp_path: Path, how: str) -> None:
    mount = sample_mount()
    with subprocess.Popen(["sleep", "1000"]) as process:
        more = ["--duration", "0.5"] if how == "duration" else []
        recorder = begin(tmp_path, "--mount", mount.path, "--attach", process.pid, *more)
        if how == "Ctrl-C":
            recorder.send_signal(signal.SIGINT)
        done = Done(recorder)
        assert process.poll() is None
        process.kill()
    assert done.status == 0, done.stderr


def test_a_process_that_ends_at_once(sample_mount: Mounter, tmp_path: Path) -> None:
    """The result is an error, or a recording of the remaining time; nothing stays behind."""
    mount = sample_mount()
    for seconds in (0.0, 0.5, 1.0):
        with subprocess.Popen(["sleep", str(seconds)]) as process:
            done = record(tmp_path, "--mount", mount.path, "--attach", process.pid)
        what = f"fusetools: cannot record process {process.pid}\n  why: it has ended\n"
        assert done.status == 0 or done.stderr.startswith(what), done.stderr


@pytest.mark.parametrize("attach", [True, *variants(False)])
def test_attach_names_requests_that_already_wait(
    sample_mount: Mounter, tmp_path: Path, attach: bool
) -> None:
    """A request began before the recording, by the process or by another one."""
    mount, other = sample_mount(), sample_mount()
    path = mount.path / "dir-00" / "file-000"
    with mount.stopped():
        process = subprocess.Popen(["stat", path], stdout=subprocess.DEVNULL)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 1.5, "a second and a half")
        of = ["--mount", mount.path, "--mount", other.path]
        of += ["--attach", process.pid] if attach else []
        done = record(tmp_path, *of, "--duration", "0.2", "--json")
        waited = time.monotonic() - began
    assert process.wait(HANGS) == 0
    (known,) = [m for m in json.loads(done.stdout)["missing"] if m["code"] == "already_waiting"]
    assert known["figures"] == {"callers": 1}
    (age,) = known["subject"].pop("ages_ns")
    assert 1.4e9 < age < 1e9 * waited
    assert known["subject"] == {
        "path": str(mount.path),
        "comms": ["stat"],
        "pids": [process.pid],
        "tids": [process.pid],
        "paths": [str(path)],
    }
    assert known["fix"] == f"fusetools stuck --mount {mount.path}"
    assert f"fusetools: {known.pop('text')}\n" in done.stderr
    known["subject"]["ages_ns"] = [age]
    assert known in session(tmp_path / "perf.data")["missing"]
