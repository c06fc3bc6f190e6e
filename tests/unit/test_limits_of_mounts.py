"""Limits of mounts: from fusectl, the backing device's file and mountinfo, without the mount."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from fusetools import session
from fusetools.host import limits
from fusetools.host.files import Files
from fusetools.session import Session, TracedMount

MOUNTINFO = (
    "40 25 0:45 / /mnt rw,nosuid - fuse.sshfs host:/x rw,user_id=0,group_id=0,max_read=65536\n"
    "41 25 0:46 / /other rw - fuse.bindfs /y rw,user_id=0,group_id=0\n"
)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (
        ("proc/self/mountinfo", MOUNTINFO),
        ("sys/class/bdi/0:45/read_ahead_kb", "128\n"),
        ("connections/45/max_background", "12\n"),
        ("connections/45/congestion_threshold", "9\n"),
        ("connections/46/max_background", "12\n"),
        ("connections/48/max_background", "4294967295\n"),
        ("sys/class/bdi/0:48/read_ahead_kb", "128\n"),
        ("proc/sys/fs/fuse/max_pages_limit", "256\n"),
        ("proc/sys/fs/fuse/default_request_timeout", "0\n"),
        ("proc/sys/fs/fuse/max_request_timeout", "60\n"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    directory = os.open(tmp_path / "connections", os.O_RDONLY | os.O_DIRECTORY)
    monkeypatch.setattr(limits, "fusectl", lambda: contextlib.nullcontext(("", directory)))
    found = limits.limits([45, 46, 47, 48], Files(tmp_path))
    os.close(directory)
    assert found[45] == {
        "max_background": 12,
        "congestion_threshold": 9,
        "read_ahead_kb": 128,
        "max_read": 65536,
        "max_pages_limit": 256,
        "request_timeout_s": 60,
    }
    assert found[48] == {}  # aborted
    assert found[46].pop("max_background") == 12
    assert found[46] == {"max_read": 0, "max_pages_limit": 256, "request_timeout_s": 60}
    assert found[47] == {}
    change = limits.change("max_background", 45, True)
    assert change == "echo N > /sys/fs/fuse/connections/45/max_background"
    mounts = "mount -t fusectl fusectl /sys/fs/fuse/connections && "
    assert limits.change("max_background", 45, False) == mounts + change
    either = f"mountpoint -q /sys/fs/fuse/connections || {mounts[:-4]}; {change}"
    assert limits.change("max_background", 45) == either
    ahead = limits.change("read_ahead_kb", 45)
    assert ahead == limits.change("read_ahead_kb", 45, False)
    assert ahead == "echo N > /sys/class/bdi/0:45/read_ahead_kb"


@pytest.mark.parametrize(
    ("default", "most", "seconds"),
    [("0", "0", 0), ("", "", 0), ("5", "0", 15), ("120", "60", 60), ("0", "70", 70)],
)
def test_the_request_timeout(tmp_path: Path, default: str, most: str, seconds: int) -> None:
    folder = tmp_path / "proc/sys/fs/fuse"
    folder.mkdir(parents=True)
    for name, text in (("default", default), ("max", most)):
        if text:
            (folder / f"{name}_request_timeout").write_text(f"{text}\n")
    assert limits.request_timeout(Files(tmp_path)) == seconds


def test_a_session_keeps_the_limits() -> None:
    mount = TracedMount("/mnt", 45, limits={"read_ahead_kb": 128})
    text = session.encoded(Session(mounts=(mount,)))
    assert session.read(text)[0].mounts[0].limits == {"read_ahead_kb": 128}
    hostile = text.replace("128", '"x"')
    assert session.read(hostile)[0].mounts[0].limits == {}
