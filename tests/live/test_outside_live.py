"""System calls on mounts: their time in requests and outside equals that of stock perf's events."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from recording import COMMAND, opened
from sample import Mounter
from truth import Stock

import fusetools

pytestmark = pytest.mark.live
READ, DUP2 = 0, 33  # x86-64


def held(recording: fusetools.Recording, graph: bool = True) -> None:
    """Compare the answers with each other: each call is its requests and the rest, and the sum of
    all is that of the stages."""
    stages = recording.stages()
    assert stages.calls
    for call in stages.calls:
        assert call.total_ns == call.in_requests_ns + sum(call.outside_ns.values())
        assert min(call.outside_ns.values(), default=1) > 0 <= call.in_requests_ns
    waited = sum(o.total_ns for o in stages.operations if o.waits)
    assert sum(call.in_requests_ns for call in stages.calls) == waited
    for name in ("read", "write"):
        mine = [c for c in stages.calls if c.operation == name]
        series = recording.hist(name).histograms
        theirs = [s for s in series if s.layer == "syscall" and s.operation == name]
        assert {s.function: (s.count, s.total_ns) for s in theirs} == {
            c.syscall: (c.calls, c.total_ns) for c in mine
        }
    most = recording.slowest(most=1 << 20).calls
    rest = {c.syscall: sum(c.outside_ns.values()) for c in stages.calls if c.outside_ns}
    assert dict.fromkeys(rest, 0) == {
        name: ns - sum(sum(c.outside_ns.values()) for c in most if c.syscall == name)
        for name, ns in rest.items()
    }
    locks = ("inode_lock", "directory_lock", "permission")
    blocked = ("dirty_throttling", "page", *locks, "passthrough", "other", "blocked")
    ns = sum(c.outside_ns.get(kind, 0) for c in stages.calls for kind in blocked)
    # A graph decides at the end of each wait, before later waits in the same call show more.
    assert not graph or recording.stacks("off-cpu").outside.total_ns == ns


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_each_read_of_a_copied_descriptor_is_on_its_mount(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    """dd copies its descriptor to 0. Most of its reads make no request: the pages are cached."""
    mount = sample_mount(delay=("read=300us",))
    words = ("dd", f"if={mount.path}/big", "of=/dev/null", "bs=4k", "count=61")
    recording = opened(tmp_path / "perf.data", [mount], *words)
    held(recording)
    (call,) = [c for c in recording.stages().calls if c.syscall == "read"]
    assert call.calls == 61 > call.requests > 0
    assert call.outside_ns["on_cpu"] > 0
    stock = Stock(recording.path, mount)
    whole = 0
    for calls in stock.syscalls.values():
        copied = [until for number, _, until in calls if number == DUP2]
        if copied:
            whole += sum(
                until - since
                for number, since, until in calls
                if number == READ and since > min(copied)
            )
    assert call.total_ns == whole


def test_callers_that_wait_for_pages_behind_one_request_at_once(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    """With max_background=1 one read follows the other: callers wait for pages meanwhile."""
    mount = sample_mount(delay=("read=3ms",))
    script = f"mount -t fusectl none /mnt && cd /mnt/{mount.connection} && echo 1 > max_background"
    limit = f"{script} && echo 1 > congestion_threshold"
    subprocess.run(["unshare", "-m", "sh", "-c", limit], check=True)
    read = " & ".join(f"cat {mount.path}/big > /dev/null" for _ in range(6))
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", f"{read} & wait")
    held(recording, graph=False)
    (call,) = [c for c in recording.stages("read").calls if c.syscall == "read"]
    assert call.outside_ns["page"] > call.in_requests_ns


def test_a_descriptor_from_before_the_recording(sample_mount: Mounter, tmp_path: Path) -> None:
    """The workload inherits it, at an offset whose pages were read before: no request shows it."""
    mount = sample_mount()
    with (mount.path / "big").open("rb") as file:
        file.read(1 << 16)
        file.seek(0)
        command = [*COMMAND, "record", "-o", str(tmp_path / "perf.data")]
        command += ["--mount", str(mount.path), "--", "dd", "of=/dev/null", "bs=1k", "count=7"]
        subprocess.run(command, stdin=file, check=True)
    calls = {c.syscall: c for c in fusetools.open(tmp_path / "perf.data").stages().calls}
    assert calls["read"].calls == 7 and calls["read"].requests == 0
