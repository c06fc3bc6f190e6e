"""Callers of mounts that hang: by which way, and of which mount."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import mounts
import pytest
from hanging import LONG, Hang, Hanging, abort, looked_at, stuck, waits_in_fuse
from mounts import wait_until

pytestmark = [
    pytest.mark.live,
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
    """Another mount has a caller, too: nobody is placed for want of another mount."""
    other, mount = hang("lost"), hang("lost")
    other.call("one")
    begin = f"import ctypes, os; libc = ctypes.CDLL(None); file = os.open('{mount.path}/file', 0)"
    caller = mount.run(*PYTHON, f"{begin}; {READERS[how]}")
    (found,) = looked_at(mount)["callers"]
    assert (found["pid"], found["path"]) == (caller.pid, f"{mount.path}/file")


def test_callers_that_reach_a_mount_by_another_name(hang: Hang, tmp_path: Path) -> None:
    """A bind mount, an overlay, a symbolic link, a changed root."""
    other, mount = hang("lost"), hang("lost")
    other.call("one")
    bind, overlay, link = (tmp_path / name for name in ("bind", "overlay", "link"))
    for folder in (bind, overlay):
        folder.mkdir()
    link.symlink_to(mount.path)
    subprocess.run(["mount", "--bind", mount.path / "d1", bind], check=True)
    options = f"lowerdir={mount.path}:{tmp_path}"
    layered = subprocess.run(["mount", "-t", "overlay", "-o", options, "none", overlay]).returncode
    try:
        names = [bind / "x", link / "d2" / "x"] + ([] if layered else [overlay / "d3" / "x"])
        callers = {mount.run("stat", name).pid: str(name) for name in names}
        inside = f"import os; os.chroot('{tmp_path}'); os.stat('/{mount.path.name}/d4/x')"
        callers[mount.run(*PYTHON, inside).pid] = f"/{mount.path.name}/d4/x"
        found = looked_at(mount)
        assert {caller["pid"]: caller["path"] for caller in found["callers"]} == callers
        status, result = stuck("--mount", bind)
        assert status == 3 and [m["connection"] for m in result["mounts"]] == [mount.connection]
    finally:
        if not layered:
            subprocess.run(["umount", "-l", overlay], check=False)
        subprocess.run(["umount", "-l", bind], check=False)


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
                abort(connection)
            there.kill()


def test_no_file_on_a_mount_is_touched(hangfs: Path, tmp_path: Path) -> None:
    """Not even for the names of functions of a daemon whose program lies there."""
    if not shutil.which("bindfs"):
        pytest.skip("no bindfs")
    (tmp_path / "tree").mkdir()
    shutil.copy(hangfs, tmp_path / "tree")
    below = tmp_path / "below"
    below.mkdir()
    with subprocess.Popen(
        ["bindfs", "-f", tmp_path / "tree", below], preexec_fn=mounts.end_with_the_test
    ) as bindfs:
        try:
            wait_until(lambda: mounts.mount_entry(below) is not None, "the mount")
            number = mounts.connection(below)
            mount = Hanging(below / "hangfs", tmp_path / "mount", "condition")
            try:
                mount.call("one")
                bindfs.send_signal(signal.SIGSTOP)
                assert looked_at(mount)["causes"][0]["kind"] == "condition"
                script = f"mount -t fusectl none /mnt && cat /mnt/{number}/waiting"
                count = subprocess.check_output(["unshare", "-m", "sh", "-c", script], text=True)
                assert count == "0\n"
            finally:
                bindfs.send_signal(signal.SIGCONT)
                mount.close()
        finally:
            subprocess.run(["umount", "-l", below], check=False)
            bindfs.kill()
