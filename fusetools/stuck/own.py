"""Processes of fusetools itself: their waits are no hang of a mount.

They are recognized by facts that an ordinary user cannot forge: a recording's note in a directory
of root's, a note of the children that stayed behind, and the kernel's flag that a process was
forked from one of these and has run no other program since. Names tell nothing: anybody can choose
them. The workload of a recording has run another program, so it does not belong to them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from fusetools.host import left
from fusetools.stuck.arguments import MOST_LOCKS
from fusetools.stuck.children import ProcessRow, text

# As record.state.DIRECTORY: that module takes long to import, and this one is used for every look.
RECORDINGS = Path("/run/fusetools")
MOST = 4 << 20  # limit in bytes of a recording's note


def own_processes(rows: Iterable[ProcessRow], place: Path = RECORDINGS) -> frozenset[int]:
    """Return the processes of fusetools.

    These are this process, those of running recordings, those that stayed behind, and all that were
    forked from them and have run no other program.
    """
    known = {row["pid"]: row for row in rows}
    noted = [*left.noted(), *(pair for pair in _recorders(place))]
    own = {os.getpid()}
    own |= {pid for pid, start in noted if pid in known and known[pid]["start"] == start}
    own |= {pid for pid in _recordings(place) if pid in known and known[pid]["owner"] == 0}
    children: dict[int, list[int]] = {}
    for pid, row in known.items():
        if row["forked"]:
            children.setdefault(row["ppid"], []).append(pid)
    found: set[int] = set()
    while own:
        pid = own.pop()
        if pid not in found:
            found.add(pid)
            own.update(children.get(pid, ()))
    return frozenset(found)


def _folders(place: Path) -> list[Path]:
    """Return the directories of recordings; only root can enter or create them."""
    try:
        return [path for path in place.iterdir() if path.is_dir() and path.stat().st_uid == 0]
    except OSError:
        return []


def _recordings(place: Path) -> list[int]:
    """Return the processes that record, by the kernel's list of their locks (proc_locks(5))."""
    files = set()
    for folder in (place, *_folders(place)):
        with contextlib.suppress(OSError):
            status = (folder / "lock").stat()
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
            files.add(f"{device}:{status.st_ino}")
    if not files:
        return []
    lines = (line.split() for line in text("/proc/locks", MOST_LOCKS).split("\n"))
    held = ((row[4], row[5]) for row in lines if len(row) > 5 and row[1] == "FLOCK")
    return [int(pid) for pid, file in held if file in files and pid.isdecimal()]


def _recorders(place: Path) -> list[tuple[int, int]]:
    """Return (pid, start) of the workloads that recordings have started."""
    found: list[tuple[int, int]] = []
    for folder in _folders(place):
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            state = json.loads(text(str(folder / "state.json"), MOST))
            found += [(int(pid), int(start)) for pid, start in state.get("processes", ())]
    return found
