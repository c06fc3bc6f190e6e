"""fusetools stuck: callers whose paths do not show the mount.

A mount is theirs if no other one has a request without a caller: these tests run alone, also
without one that records nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mounts
import pytest
from hanging import LONG, Hang, looked_at, stuck

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and look at others"),
]
PYTHON = (sys.executable, "-c")


@pytest.fixture(autouse=True)
def nobody_mounts(alone: None) -> Iterator[None]:
    with mounts.alone(records=False):
        yield


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
        time.sleep(LONG)
        status, result = stuck("--mount", bind)
        assert status == 3 and [m["connection"] for m in result["mounts"]] == [mount.connection]
    finally:
        if not layered:
            subprocess.run(["umount", "-l", overlay], check=False)
        subprocess.run(["umount", "-l", bind], check=False)


def test_a_mount_that_was_unmounted_under_its_callers(hang: Hang) -> None:
    mount = hang("lost")
    mount.call("one")
    subprocess.run(["umount", "-l", mount.path], check=True)
    time.sleep(LONG)
    status, result = stuck()
    assert status == 3
    (found,) = [m for m in result["mounts"] if m["connection"] == mount.connection]
    assert found["path"] == ""
    assert [c["pid"] for c in found["callers"]] == [mount.callers[0].pid]
