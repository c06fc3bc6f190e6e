"""A caller that runs already, and those that descend from it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.asuser import may_read_memory
from fusetools.host.files import Files
from fusetools.host.processes import Status, ancestors, code, descendants, status, threads
from fusetools.record.workload import User

# Filters have room for this many ranges of numbers beside the names of daemons: a page each.
RANGES = 24
# In stacks of further processes, functions have no names.
PROCESSES = 100
LIST = "ps -ef   # lists processes"


class Gone(Error):
    """The caller has ended before it could be recorded."""


class Attached:
    """Process ``pid``; ``user``: who invoked sudo, None: root alone. Error: it is not there, or
    cannot be recorded."""

    def __init__(self, pid: int, user: User | None) -> None:
        self.pid = pid
        self._files = Files(Path("/"))
        self._start = self._checked(user).started
        self.descendants: tuple[int, ...] = ()

    def _checked(self, user: User | None) -> Status:
        what = f"cannot record process {self.pid}"
        now = status(self._files, self.pid)
        if now is None:
            raise Gone(what, "there is no such process", LIST)
        if now.process != self.pid:
            why = f"it is a thread of process {now.process}"
            raise Error(what, why, f"fusetools record --attach {now.process}")
        if now.of_kernel:
            raise Error(what, "it is a thread of the kernel", "fusetools record   # all callers")
        if now.ended:
            raise Gone(what, "it has ended", LIST)
        if self.pid in ancestors(self._files, os.getpid()):
            why = "this recording is one of the processes that descend from it"
            raise Error(what, why, "fusetools record   # all callers")
        if user and not may_read_memory(self.pid, user):
            why = f"it belongs to {_name(now.uid)}, and {user.name} invoked sudo"
            if now.uid == user.uid:
                why = f"{user.name}, who invoked sudo, may not read its memory"
            raise Error(what, why, f"sudo fusetools record --as-root --attach {self.pid}")
        return now

    def numbers(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of numbers that hold those of all their threads. Raise Error if the
        process has ended."""
        self.look()
        if self.ended:
            raise Gone(f"cannot record process {self.pid}", "it has ended", LIST)
        return ranges(threads(self._files, (self.pid, *self.descendants)), RANGES)

    def look(self) -> None:
        """Add the processes that descend from it now."""
        now = descendants(self._files, self.pid)
        self.descendants = tuple(sorted({*self.descendants, *now} - {self.pid}))

    def maps(self) -> list[tuple[int, int, int, int, str, bytes, str]]:
        """Return the code that the processes have mapped, as daemons.mapped(). perf reports later
        mappings."""
        own = self._files.link("/proc/self/ns/mnt")
        rows = []
        for pid in (self.pid, *self.descendants)[:PROCESSES]:
            elsewhere = self._files.link(f"/proc/{pid}/ns/mnt") != own
            for part in code(self._files, pid):
                place = f"/proc/{pid}/root{part.path}" if elsewhere and part.inode else ""
                size = part.end - part.start
                rows.append((pid, part.start, size, part.offset, part.path, b"", place))
        return rows

    @property
    def ended(self) -> bool:
        now = status(self._files, self.pid)
        return now is None or now.started != self._start or now.ended


def ranges(numbers: list[int], most: int) -> tuple[tuple[int, int], ...]:
    """Up to ``most`` ranges (first, last) that hold all of them, and as few others as can be."""
    ordered = sorted(set(numbers))
    gaps = sorted(range(1, len(ordered)), key=lambda at: ordered[at - 1] - ordered[at])
    wide = [at for at in gaps if ordered[at] - ordered[at - 1] > 1]
    cuts = [0, *sorted(wide[: most - 1]), len(ordered)]
    return tuple((ordered[a], ordered[b - 1]) for a, b in zip(cuts, cuts[1:]) if a < b)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
