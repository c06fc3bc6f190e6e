"""Callers of hanging mounts: by which path, and of which mount."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import program32
import pytest
from hanging import LONG, Hang, Hanging, looked_at, set_to_one, stuck, user_stack, waits_in_fuse
from mounts import wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.unrecorded,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and look at others"),
]


PYTHON = (sys.executable, "-c")
READERS = {
    "page fault": "import mmap; print(mmap.mmap(file, 0, prot=1)[5000])",
    "sendfile": "os.sendfile(os.open('/dev/null', os.O_WRONLY), file, 0, 4096)",
    "splice": "ends = os.pipe(); libc.splice(file, 0, ends[1], 0, 4096, 0)",
}


@pytest.mark.parametrize("how", READERS)
def test_callers_that_read_in_other_ways(hang: Hang, how: str) -> None:
    """Another mount has a caller, too: no caller is assigned to a mount by elimination."""
    other, mount = hang("lost"), hang("lost")
    other.call("one")
    begin = f"import ctypes, os; libc = ctypes.CDLL(None); file = os.open('{mount.path}/file', 0)"
    caller = mount.run(*PYTHON, f"{begin}; {READERS[how]}")
    (found,) = looked_at(mount)["callers"]
    assert (found["pid"], found["path"]) == (caller.pid, f"{mount.path}/file")


def test_a_caller_of_32_bits(hang: Hang, tmp_path: Path) -> None:
    """Its system calls have other numbers: 295 is preadv on this machine."""
    mount = hang("lost")
    caller = mount.run(program32.program(tmp_path), mount.path / "d1" / "x")
    (found,) = looked_at(mount)["callers"]
    assert (found["pid"], found["path"]) == (caller.pid, f"{mount.path}/d1/x")
    assert found["call"] == "openat"


def test_the_same_path_in_another_mount_namespace(hang: Hang, hangfs: Path) -> None:
    """Each mount has the callers of its namespace."""
    mount = hang("lost")
    inside = f"{hangfs} {mount.path} lost & sleep 1; exec stat {mount.path}/d1/inner"
    with subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f"mount --make-rprivate /; umount -l {mount.path}; {inside}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as there:
        try:
            wait_until(lambda: waits_in_fuse(there.pid), "the caller there")
            mount.call("outer")
            time.sleep(LONG)
            _, result = stuck("--mount", mount.path)
            found = {m["connection"]: [c["pid"] for c in m["callers"]] for m in result["mounts"]}
            assert found.pop(mount.connection) == [mount.callers[0].pid]
            assert list(found.values()) == [[there.pid]]
        finally:
            for connection in found:
                set_to_one(connection, "abort")
            there.kill()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fusetools-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_no_file_on_a_mount_is_touched(hangfs: Path, open_to_all: Path, tmp_path: Path) -> None:
    """A daemon's program lies on a mount: neither the program nor its debug file beside it is
    opened to name functions."""
    if not shutil.which("objcopy"):
        pytest.skip("no objcopy")
    folder = open_to_all  # such files are read as nobody
    program, debug = folder / "hangfs", folder / "hangfs.debug"
    subprocess.run(["objcopy", "--only-keep-debug", hangfs, debug], check=True)
    subprocess.run(
        ["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", hangfs, program], check=True
    )
    mount = Hanging(program, tmp_path / "mount", "condition")
    try:
        mount.call("one")
        pid, tid = mount.daemon.pid, mount.thread("waits")
        wait_until(lambda: "futex" in Path(f"/proc/{pid}/task/{tid}/wchan").read_text(), "a wait")

        def named(devices: set[int], places: list[str]) -> list[str]:
            names, _ = user_stack(pid, tid, lambda it, _: it in devices, places)
            return names

        assert "hang" in named(set(), [])
        without = named(set(), [str(folder)])
        assert "hang" not in without and "[hangfs]" in without
        device = program.stat().st_dev
        number = os.major(device) << 20 | os.minor(device)
        assert not {"hang", "pthread_cond_wait"} & set(named({number}, [str(folder)]))
    finally:
        mount.close()


STOPS = {"signal": "stopped", "freezer": "frozen", "cgroup2": "frozen"}


@contextlib.contextmanager
def group_of(pid: int, kind: str, folder: Path) -> Iterator[Path]:
    """Put a process into a new cgroup. ``kind``: cgroup2, or freezer for version 1."""
    folder.mkdir()
    options = ["-t", kind] if kind == "cgroup2" else ["-t", "cgroup", "-o", kind]
    if subprocess.run(["mount", *options, "none", folder], capture_output=True).returncode:
        pytest.skip(f"this kernel has no {kind}, or uses it elsewhere")
    group = folder / f"halted-{os.getpid()}"  # not as a recording's own
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        set_frozen(group, False)
        for left in (group / "cgroup.procs").read_text().split():
            (folder / "cgroup.procs").write_text(left)
        group.rmdir()
        subprocess.run(["umount", folder], check=True)


def set_frozen(group: Path, frozen: bool) -> None:
    if (group / "cgroup.freeze").exists():
        (group / "cgroup.freeze").write_text(str(int(frozen)))
    else:
        (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")


@pytest.mark.parametrize("how", STOPS)
def test_a_caller_that_is_halted_when_its_answer_comes(
    hang: Hang, tmp_path: Path, how: str
) -> None:
    """The kernel proves it: no request waits, and the printed command continues the caller."""
    mount = hang("quiet")
    os.kill(mount.daemon.pid, signal.SIGSTOP)
    mount.call("x")
    (caller,) = mount.callers
    with contextlib.ExitStack() as ends:
        if how == "signal":
            os.kill(caller.pid, signal.SIGSTOP)
        else:
            group = ends.enter_context(group_of(caller.pid, how, tmp_path / "group"))
            set_frozen(group, True)
        assert "halted" in looked_at(mount)["causes"][0]["reason"]["subject"]  # the daemon is
        os.kill(mount.daemon.pid, signal.SIGCONT)
        wait_until(lambda: looked_at(mount)["waiting"] == 0, "the answer")
        found = looked_at(mount)
        assert (found["state"], found["causes"], found["callers"]) == ("quiet", [], [])
        (cause,) = found["halted"]
        subject = cause["reason"]["subject"]
        assert (cause["kind"], subject["pid"]) == (STOPS[how], caller.pid)
        assert subject["path"] == f"{mount.path}/d0/x"
        assert caller.poll() is None
        subprocess.run(["sh", "-c", cause["fixes"][0]["command"]], check=True)
        wait_until(lambda: caller.poll() is not None, "the caller's end")
