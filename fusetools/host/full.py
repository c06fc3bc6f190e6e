"""Full local file systems on which a process has files, such as a daemon's cache.

Only disks of this host and memory are asked, on paths where no look-up can hang: never a FUSE
mount, a network file system, or one that lies below such a mount.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fusetools.host.files import Files
from fusetools.host.paths import is_on, unescape

LOCAL = frozenset(("btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs", "zfs"))
# File systems on whose mount points a look-up does not leave this host.
WALKED = LOCAL | {"devtmpfs", "overlay", "ramfs", "rootfs", "squashfs", "sysfs"}
LEAST = 1 << 20  # free bytes of one that is not full
MOST_FILES = 1024  # examined descriptors of a process


def full(pid: int, files: Files | None = None) -> list[str]:
    """Return the mount points of the full file systems."""
    files = files or Files(Path("/"))
    theirs = {number: place for number, place, _, _ in _mounts(files, str(pid))}
    devices = {theirs[number] for number in _used(files, pid) if number in theirs}
    own = list(_mounts(files, "self"))
    found = {}
    for _, device, path, fstype in own:
        if device in devices and fstype in LOCAL and device not in found and _reachable(path, own):
            try:
                disk = os.statvfs(path)
            except OSError:
                continue
            inodes = disk.f_files and not disk.f_favail
            if disk.f_bavail * disk.f_frsize < LEAST or inodes:
                found[device] = path
    return sorted(found.values())


_Mount = tuple[str, str, str, str]


def _mounts(files: Files, pid: str) -> Iterator[_Mount]:
    """Yield the number, device, mount point and type of each mount that a process sees."""
    for line in (files.read(f"/proc/{pid}/mountinfo", quiet=True) or "").split("\n"):
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if separator and len(fields) > 4:
            yield fields[0], fields[2], unescape(fields[4]), after.partition(" ")[0]


def _used(files: Files, pid: int) -> set[str]:
    """Return the numbers of the mounts on which a process has files open."""
    numbers = files.list(f"/proc/{pid}/fdinfo")[:MOST_FILES]
    infos = (files.read(f"/proc/{pid}/fdinfo/{number}", quiet=True) or "" for number in numbers)
    return {found[1] for info in infos if (found := re.search(r"^mnt_id:\s*(\d+)", info, re.M))}


def _reachable(path: str, mounts: list[_Mount]) -> bool:
    """Return whether each file system on the way to a mount point is one of this host, and nothing
    is mounted over it."""
    on = [(place, fstype) for _, _, place, fstype in mounts if is_on(path, place)]
    return all(fstype.partition(".")[0] in WALKED for _, fstype in on)
