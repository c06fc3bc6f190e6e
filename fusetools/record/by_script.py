"""Recordings by a script (record.sh): whether one runs, and what a killed one left.

The script's link /run/fusetools/script points to PID.START: its process, and when that started.
script.made lists what it made, each thing before it is made.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusetools.host.files import Files
from fusetools.host.probe import tracefs_places
from fusetools.host.processes import started
from fusetools.record.tracecmd import SETTINGS

LINK, MADE = "script", "script.made"
MOST = 1 << 20  # bytes of the list
_LINE = re.compile(
    r"probe (?P<probe>fuse_(?:daemon|kernel)/[A-Za-z0-9_]{1,63})"
    rf"|ftrace (?P<setting>{'|'.join(SETTINGS)}) (?P<value>[A-Za-z0-9_:-]{{1,64}})"
    r"|work (?P<work>/(?:.*/)?\.fusetools\.[A-Za-z0-9]{8})"
)


@dataclass(frozen=True)
class Made:
    """The things that a script made. ``probes``: "group:event"; ``ftrace``: settings before it
    changed them; ``folders``: where it recorded; ``tracefs``: where probes and settings are."""

    tracefs: str
    probes: tuple[str, ...]
    ftrace: Mapping[str, str]
    folders: tuple[str, ...]


def running(place: Path) -> int | None:
    """Return the process of the script that records now. ``place``: the directory of the locks."""
    try:
        pid, _, start = os.readlink(place / LINK).partition(".")
    except OSError:
        return None
    if not (pid.isdecimal() and len(pid) < 10):
        return None
    return int(pid) if str(started(int(pid))) == start else None


def words(pid: int) -> str:
    """Name a script that runs."""
    return f"pid {pid}: sh record.sh"


def left(place: Path) -> Made | None:
    """Return what a script left that does not run any more; None: nothing."""
    if running(place):
        return None
    try:
        # In a directory that only root may enter.
        descriptor = os.open(place / MADE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if not os.path.islink(place / LINK):
            return None
        return Made("", (), {}, ())
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(MOST).decode(errors="surrogateescape")
    found = [match for line in text.splitlines() if (match := _LINE.fullmatch(line))]
    places = tracefs_places(Files(Path("/")))
    there = [one for one in places if Path(one, "events").exists()]
    return Made(
        next(iter([*there, *places]), ""),
        tuple(match["probe"].replace("/", ":", 1) for match in found if match["probe"]),
        {match["setting"]: match["value"] for match in found if match["setting"]},
        tuple(match["work"] for match in found if match["work"]),
    )


def forget(place: Path, made: Made) -> list[str]:
    """Remove a killed script's directories, and its notes. Return what was removed, in words."""
    removed = []
    for folder in made.folders:
        with contextlib.suppress(OSError):
            status = os.lstat(folder)
            above = os.lstat(os.path.dirname(folder))
            # As the script was: it writes only where root alone may.
            private = {status.st_uid, above.st_uid} == {os.geteuid()} and not above.st_mode & 0o022
            if private and stat.S_ISDIR(status.st_mode):
                shutil.rmtree(folder)
                removed.append(folder)
    for name in (MADE, LINK):
        (place / name).unlink(missing_ok=True)
    return removed
