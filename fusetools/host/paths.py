"""Paths on mounts whose daemons may hang, from mountinfo. The mounts are not touched."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

VIRTIOFS = "virtiofs"  # like FUSE, but the daemon runs on the host of this virtual machine
FUSE_TYPES = ("fuse", "fuseblk", VIRTIOFS)
HANGING = (*FUSE_TYPES, "autofs")  # file system types whose callers wait for a daemon


def is_on(path: str, mount: str) -> bool:
    """Return whether an absolute path is a mount point or lies below one."""
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def unescape(text: str) -> str:
    """mountinfo writes blanks, tabs, newlines and backslashes as three octal digits."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), text)


def hanging(text: str) -> list[str]:
    """Return the mount points in a /proc/PID/mountinfo below which a look-up may hang."""
    points = []
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after.partition(" ")[0].partition(".")[0] in HANGING:
            points.append(unescape(fields[4]))
    return points


def may_hang() -> Callable[[str], bool]:
    """Return a function that tells whether a path lies below such a mount point now.

    The path need not be absolute. Links are not followed.
    """
    try:
        text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        text = ""
    points = hanging(text)
    return lambda path: any(is_on(os.path.abspath(path), point) for point in points)
