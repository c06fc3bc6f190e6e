"""Facts about the processes that run during a recording."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from fusetools.host.files import Files
from fusetools.host.owners import LONGEST, Owner, owners, users
from fusetools.record.job import Job
from fusetools.session import MOST_PROCESSES, Process

_MOST_BYTES = 1 << 18  # in a recording
_EVERY = 1.0  # seconds


class Owners:
    """Users, cgroups, jobs and command lines of processes, noted while they live.

    A user who invoked sudo learns what /proc shows to that user. A process that still runs its
    parent's program is examined once more."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._noted: dict[int, Owner | None] = {}  # None: a kernel thread, ended, or ambiguous
        self._young: set[int] = set()
        self._ended: set[int] = set()
        self._due = 0.0

    def meanwhile(self) -> None:
        """Look once a second, however often this is called."""
        if time.monotonic() >= self._due:
            self.look()

    def look(self) -> None:
        """Note the processes that are new."""
        self._due = time.monotonic() + _EVERY
        pids = {int(pid) for pid in Files(Path("/")).list("/proc") if pid.isdecimal()}
        for pid in self._ended & pids:  # two processes had this number
            self._noted[pid] = None
            self._young.discard(pid)
        self._ended |= self._noted.keys() - pids
        new = sorted((pids - self._noted.keys()) | (self._young & pids))
        new = new[: max(MOST_PROCESSES - len(self._noted), 0)]
        found = owners(new, self.job.user) if new else {}
        young = {pid for pid, owner in found.items() if owner.forked} - self._young
        self._noted.update((pid, found.get(pid, self._noted.get(pid))) for pid in new)
        self._young = young | (self._young - pids)

    @cached_property
    def _users(self) -> dict[int, str]:
        return users(Files(Path("/")).read("/etc/passwd", quiet=True) or "")

    @property
    def size(self) -> int:
        """Number of bytes that processes() needs in a recording, at most."""
        every = (self._process(pid) for pid in self._noted)
        return min(sum(_size(process) for process in every if process), _MOST_BYTES)

    def processes(self, pids: Iterable[int], workload: int | None) -> tuple[Process, ...]:
        """Return those of ``pids`` that were noted. ``workload``: the pid of the job's command.

        A process may have run several programs: the last one counts, where it has not ended."""
        noted = {pid: owner for pid in pids if (owner := self._noted.get(pid))}
        last = owners(sorted(noted), self.job.user) if noted else {}
        alive = {pid for pid in last if last[pid].start == noted[pid].start}
        self._noted.update((pid, last[pid]) for pid in alive)
        self._young -= alive
        rows: list[Process] = []
        room = _MOST_BYTES
        for pid in sorted(noted):
            process = self._process(pid, pid == workload)
            if process and pid in alive:
                process = replace(process, comm="")
            room -= _size(process) if process else 0
            if process and room >= 0:
                rows.append(process)
        return tuple(rows)

    def _process(self, pid: int, workload: bool = False) -> Process | None:
        owner = self._noted.get(pid)
        if owner is None:
            return None
        command = "" if pid in self._young else owner.command
        comm = owner.comm
        if workload and self.job.options.command:
            comm = ""
            command = shlex.join(self.job.options.command)[:LONGEST]
        cgroup = re.sub(r"/fusetools-\d+$", "", owner.cgroup) or "/"  # where record put it
        user = self._users.get(owner.uid, str(owner.uid))
        return Process(pid, comm, command, user, cgroup, owner.job)


def _size(process: Process) -> int:
    return len(json.dumps(vars(process))) + 2
