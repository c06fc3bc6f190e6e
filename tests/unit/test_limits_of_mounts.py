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
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    directory = os.open(tmp_path / "connections", os.O_RDONLY | os.O_DIRECTORY)
    monkeypatch.setattr(limits, "fusectl", lambda: contextlib.nullcontext(("", directory)))
    found = limits.limits([45, 46, 47], Files(tmp_path))
    os.close(directory)
    assert found[45] == {
        "max_background": 12,
        "congestion_threshold": 9,
        "read_ahead_kb": 128,
        "max_read": 65536,
    }
    assert found[46] == {"max_read": 0} and found[47] == {}
    change = limits.change("max_background", 45)
    assert change == "echo N > /sys/fs/fuse/connections/45/max_background"
    assert limits.change("read_ahead_kb", 45) == "echo N > /sys/class/bdi/0:45/read_ahead_kb"


def test_a_session_keeps_the_limits() -> None:
    mount = TracedMount("/mnt", 45, limits={"read_ahead_kb": 128})
    text = session.encoded(Session(mounts=(mount,)))
    assert session.read(text)[0].mounts[0].limits == {"read_ahead_kb": 128}
    hostile = text.replace("128", '"x"')
    assert session.read(hostile)[0].mounts[0].limits == {}
