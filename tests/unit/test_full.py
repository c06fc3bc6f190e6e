"""Full file systems of a daemon's cache: only those that can be asked without a hang."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fusetools.host import full
from fusetools.host.files import Files

OURS = """\
20 1 0:2 / / rw - overlay overlay rw
30 20 8:3 / /var/cache rw - xfs /dev/sda3 rw
31 20 0:50 / /mnt/fuse rw - fuse.sshfs host: rw
32 31 8:4 / /mnt/fuse/disk rw - ext4 /dev/sda4 rw
33 20 0:60 / /home rw - nfs4 server:/home rw
34 20 8:5 / /roomy rw - ext4 /dev/sda5 rw
35 20 8:6 / /hidden rw - ext4 /dev/sda6 rw
36 35 0:61 / /hidden rw - fuse.x x rw
"""


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ((70,), ["/var/cache"]),
        ((71, 72, 73, 74, 75), []),
        ((70, 71, 74), ["/var/cache"]),
        ((), []),
    ],
)
def test_a_full_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...], found: list[str]
) -> None:
    for pid in ("self", "7"):
        (tmp_path / "proc" / pid / "fdinfo").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(OURS)
    # The daemon's own namespace has other numbers.
    theirs = "".join(f"4{line}" if line else "" for line in OURS.splitlines(keepends=True))
    theirs = theirs.replace("430 ", "70 ").replace("431 ", "71 ").replace("432 ", "72 ")
    theirs = theirs.replace("433 ", "73 ").replace("434 ", "74 ").replace("435 ", "75 ")
    (tmp_path / "proc/7/mountinfo").write_text(theirs)
    for number in numbers:
        text = f"pos:\t0\nflags:\t02\nmnt_id:\t{number}\n"
        (tmp_path / f"proc/7/fdinfo/{number}").write_text(text)
    asked: list[str] = []

    def statvfs(path: str) -> SimpleNamespace:
        asked.append(path)
        free = 1 << 20 if path == "/roomy" else 10
        return SimpleNamespace(f_bavail=free, f_frsize=4096, f_files=0, f_favail=0)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert full.full(7, Files(tmp_path)) == found
    assert set(asked) <= {"/var/cache", "/roomy"}
