"""`fusetools record --mount PATH` where nothing is mounted yet."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mounts import HANGS
from recording import COMMAND, Done, counts, session, start
from sample import BUILD, Mounter, SampleMount, make_tree, until

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]

CALLS = 200_003
LOOP = f"""import os
for _ in range({CALLS}): os.sched_get_priority_max(0)"""


def wait_for_line(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended without a line that has {words!r}")


def test_a_later_mount_is_recorded(tmp_path: Path) -> None:
    place = tmp_path / "fs"
    with start(tmp_path, "--mount", place / "mount", "--detail", "latency") as process:
        wait_for_line(process, f"waiting for a FUSE file system on {place}/mount")
        place.mkdir()
        mount = SampleMount(place, ["--kernel-cache", "0"], "with-symbols")
        try:
            wait_for_line(process, "fusetools: tracing")
            before = mount.callbacks()
            mount.workload("stat", 101, "dir-00/file-000")
            own = mount.callbacks() - before
            process.send_signal(signal.SIGINT)
            done = Done(process)
        finally:
            mount.clean()
    assert done.status == 0, done.stderr
    data = tmp_path / "perf.data"
    assert counts(data)["fuse_daemon:cvmfs_getattr"] == own["cvmfs_getattr"] > 0
    lacks = session(data)["missing"]
    (missing,) = [one for one in lacks if one["code"] == "mounted_before_traced"]
    assert missing["subject"] == {"path": f"{place}/mount"}


def test_a_workload_that_mounts(tmp_path: Path) -> None:
    """Recording starts with the mount: the exit status is the workload's, children are recorded,
    and the time before is reported."""
    path, go = tmp_path / "mount", tmp_path / "go"
    path.mkdir()
    make_tree(tmp_path / "tree")
    daemon = f"{BUILD}/with-symbols/samplefs --kernel-cache 0 --socket {tmp_path}/talk"
    work = f"""{sys.executable} -S -c '{LOOP}'
        {daemon} {tmp_path}/tree {path}
        {until(f"[ -e {go} ]")}
        {BUILD}/workload stat 101 {path}/dir-00/file-000
        umount {path}; exit 7"""
    with start(tmp_path, "--mount", path, "--", "sh", "-c", work) as process:
        wait_for_line(process, f"no FUSE file system is mounted on {path} yet: the workload starts")
        wait_for_line(process, "fusetools: tracing")
        go.touch()
        done = Done(process)
    assert done.status == 7, done.stderr
    assert "missing: the workload's beginning: it began" in done.stderr
    lacks = session(tmp_path / "perf.data")["missing"]
    (late,) = [one for one in lacks if one["code"] == "workload_before_traced"]
    assert 0 <= late["figures"]["on_cpu_ns"] <= late["figures"]["ago_ns"] * (os.cpu_count() or 1)
    # The greatest part of it is a loop, whose number of calls is known.
    assert late["subject"]["call"] == "sched_get_priority_max"
    assert late["figures"]["calls"] + late["figures"]["lost"] // 2 >= CALLS
    assert late["figures"]["calls"] == CALLS or late["figures"]["lost"]
    assert 0 < late["figures"]["calls_ns"] < late["figures"]["span_ns"] < late["figures"]["ago_ns"]
    data = tmp_path / "perf.data"
    seen = counts(data)
    assert seen["fuse_daemon:cvmfs_getattr"] >= 101
    assert seen["raw_syscalls:sys_enter"] > 101


def test_record_names_callers_of_another_mount(sample_mount: Mounter, tmp_path: Path) -> None:
    hung, path = sample_mount(), tmp_path / "mount"
    path.mkdir()
    make_tree(tmp_path / "tree")
    daemon = f"{BUILD}/with-symbols/samplefs --socket {tmp_path}/talk {tmp_path}/tree {path}"
    with hung.stopped():
        caller = subprocess.Popen(["stat", hung.path / "dir-00"], stdout=subprocess.DEVNULL)
        work = f"sleep 1.5; {daemon}; {until(f'[ -e {tmp_path}/go ]')}; umount {path}"
        mounts = ["--mount", hung.path, "--mount", path]
        with start(tmp_path, *mounts, "--", "sh", "-c", work) as process:
            wait_for_line(process, "fusetools: tracing")
            (tmp_path / "go").touch()
            done = Done(process)
    assert caller.wait(HANGS) == 0
    assert done.status == 0, done.stderr
    lacks = session(tmp_path / "perf.data")["missing"]
    (known,) = [one for one in lacks if one["code"] == "already_waiting"]
    assert known["subject"]["path"] == str(hung.path) and known["figures"] == {"callers": 1}


def test_a_workload_that_does_not_mount(tmp_path: Path) -> None:
    done = Done(start(tmp_path, "--mount", tmp_path / "x", "--", "sh", "-c", "exit 3"))
    assert done.status == 3
    assert done.stderr.splitlines()[1:] == [
        f"fusetools: no FUSE file system is mounted on {tmp_path}/x",
        "  why: the workload ended, and nothing was recorded",
        "  fix: fusetools doctor   # lists the FUSE mounts",
    ]


def test_a_workload_that_mounts_and_ends(tmp_path: Path) -> None:
    """As with a wrapper that mounts and returns: its exit status is kept."""
    mount, rawfs = tmp_path / "x", Path(__file__).with_name("rawfs.py")
    mount.mkdir()
    log = tmp_path / "log"
    script = f"setsid {sys.executable} {rawfs} {mount} >{log} 2>&1 & "
    script += f"until grep -q ready {log}; do sleep 0.01; done; exit 7"
    try:
        done = Done(start(tmp_path, "--mount", mount, "--", "sh", "-c", script))
        assert done.status == 7, done.stderr
        lacks = session(tmp_path / "perf.data")["missing"]
        (ended,) = [one for one in lacks if one["code"] == "workload_ended_before"]
        assert ended["subject"]["path"] == str(mount) and ended["figures"]["status"] == 7
        assert 0 < ended["figures"]["on_cpu_ns"] <= ended["figures"]["ago_ns"]
    finally:
        os.kill(int(log.read_text().split()[1]), signal.SIGTERM)


def test_ctrl_c_ends_the_wait_and_the_path_is_never_touched(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("this host has no strace")
    log, path = tmp_path / "strace", tmp_path / "nothing"
    trace = ["strace", "-f", "-e", "trace=file", "-e", "signal=none", "-o", str(log)]
    with subprocess.Popen(
        [*trace, *COMMAND, "record", "--mount", str(path)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_line(process, "waiting for a FUSE file system")
        pid = int(log.read_text().split()[0])
        subprocess.run(["kill", "-INT", str(pid)], check=True)
        done = Done(process)
    assert done.status == 1
    assert done.stderr == "fusetools: interrupted before anything was mounted\n"
    touched = [line for line in log.read_text().splitlines() if str(path) in line]
    assert [line for line in touched if "execve(" not in line] == []
    assert not (tmp_path / "perf.data").exists()
