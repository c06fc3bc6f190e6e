"""Names of a process's cgroups, and where they and FUSE's connections are mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusetools.host import cgroup
from fusetools.host.files import Files
from fusetools.host.fusectl import fusectl
from fusetools.host.mounts import reachable
from fusetools.stuck import cgroups


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("0::/user.slice/a.scope\n", "/user.slice/a.scope"),
        # Version 1, and both versions (systemd's hybrid): not the root of the first or last line.
        ("4:cpuset:/\n3:memory:/job:1\n1:name=systemd:/job:1\n", "/job:1"),
        ("4:cpuset:/\n1:name=systemd:/a.slice\n0::/\n", "/a.slice"),
        ("1:name=systemd:/a\n0::/b\n", "/b"),
        ("0::/\n", "/"),
        ("0::/../other\n", ""),  # outside of our cgroup namespace
        ("", ""),
    ],
)
def test_the_name_of_a_cgroup(listed: str, name: str) -> None:
    assert cgroup.name(listed) == name
    assert cgroups.about(listed, {})["cgroup"] == name


MOUNTINFO = r"""20 1 8:1 / / rw - ext4 /dev/x rw
21 20 0:40 / /mnt/root rw - fuse.x x rw
22 21 0:5 / /mnt/root/sys rw - sysfs sysfs rw
23 22 0:6 / /mnt/root/sys/fs/fuse/connections rw shared:3 master:4 - fusectl none rw
24 22 0:7 / /mnt/root/cgroup rw - cgroup2 none rw
25 20 0:6 / /sys/fs/my\040fuse rw - fusectl none rw
26 20 0:7 / /sys/fs/cgroup/unified rw - cgroup2 none rw
27 20 0:8 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
28 22 0:6 / /mnt/root/sys/other rw - fusectl none rw
"""


def test_no_way_leads_over_a_mount_that_may_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of them was opened, below a root on FUSE; or a name with a blank not found."""
    monkeypatch.setattr(Files, "read", lambda *_: MOUNTINFO)
    monkeypatch.setattr(cgroups, "text", lambda *_: MOUNTINFO)
    assert cgroups.hierarchies() == {
        "": "/sys/fs/cgroup/unified",
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
    }
    opened: list[str] = []

    def open_(name: str, *_: object, **__: object) -> int:
        opened.append(name)
        raise OSError

    monkeypatch.setattr(os, "open", open_)
    with fusectl() as (place, directory):
        assert (place, directory) == ("/sys/fs/my fuse", None)
    assert opened == ["/sys/fs/my fuse"]


def test_a_root_on_fuse_hides_nothing() -> None:
    text = MOUNTINFO.replace(" / / rw - ext4 ", " / / rw - fuse.y ")
    assert reachable(text, "fusectl") == [("/sys/fs/my fuse", "rw")]
