"""The traced daemons as they were when the recording began, and what became of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fusetools.figures import ending
from fusetools.host.facts import Mount
from fusetools.host.files import Files
from fusetools.host.mounts import OpenFile, answering, files_of
from fusetools.host.processes import code, oom_kills, read_stat, started, wait_status
from fusetools.host.sockets import of_process, peers
from fusetools.record import throttling
from fusetools.record.job import Job
from fusetools.session import Ended, File, Peer

# (pid, start, length, offset in the file, path, build id, where it is here), as native.merge()
Mapped = tuple[int, int, int, int, str, bytes, str]


class Daemons:
    """The daemons of a job's mounts, read when this is made.

    ``started``: their start times by pid; ``maps``: their code; ``stopped``: those that a signal
    had stopped at the recording's end; ``followers``: the process that serves a path since its
    daemon ended; ``ends``: how those ended that have.
    """

    def __init__(self, job: Job) -> None:
        self._begin()
        self.job = job
        files = Files(Path("/"))
        for mount in (target.mount for target in job.plan.targets):
            if mount.daemon_pid is not None:
                self.started[mount.daemon_pid] = started(mount.daemon_pid)
                with contextlib.suppress(OSError):  # before Linux 5.3
                    self.pidfds[mount.daemon_pid] = os.pidfd_open(mount.daemon_pid)
                self.sockets[mount.daemon_pid] = of_process(mount.daemon_pid)
                self.opened[mount.daemon_pid] = files_of(files, mount.daemon_pid)
                self.maps += mapped(mount)
        for pid in self.started:
            self.quotas.update(throttling.quotas(files, pid))
        self.oom_kills = oom_kills(files)

    def _begin(self) -> None:
        """Begin with nothing known of any daemon."""
        self.started: dict[int, int | None] = {}
        self.sockets: dict[int, dict[int, int]] = {}  # fd -> inode
        self.opened: dict[int, dict[int, OpenFile]] = {}
        self.maps: list[Mapped] = []
        self.quotas: dict[str, throttling.Quota] = {}
        self.stopped: set[int] = set()
        self.followers: dict[str, int] = {}
        self.pidfds: dict[int, int] = {}
        self.oom_kills = 0
        self.ends: list[Ended] = []

    def lives(self, pid: int) -> bool:
        """Return whether a daemon has not ended."""
        now = started(pid)
        return now is not None and now == self.started.get(pid)

    def check(self) -> None:
        """Warn of those that have ended, or are stopped."""
        files, warnings = Files(Path("/")), self.job.outcome.warnings
        ended = {pid for pid in self.started if not self.lives(pid)}
        for pid in self.started:
            if pid in ended:
                status = wait_status(files, pid, self.pidfds.get(pid, -1))
                self.ends.append(Ended(pid, status, oom_kills(files) - self.oom_kills))
                how = f": {ending(status)}" if status is not None else ""
                warnings.append(f"the daemon, pid {pid}, ended during the recording{how}")
            elif _is_stopped(files, pid):
                self.stopped.add(pid)
                warnings.append(
                    f"the daemon, pid {pid}, was stopped at the recording's end (kill -CONT {pid})"
                )
        if ended:
            warnings += self._followers(files, ended)
        for descriptor in self.pidfds.values():
            os.close(descriptor)
        self.pidfds = {}

    def _followers(self, files: Files, ended: set[int]) -> Iterator[str]:
        """Yield a warning for each mount that another process serves since its daemon ended."""
        now = answering(files)
        for mount in (target.mount for target in self.job.plan.targets):
            pid = now.get(mount.path)
            if mount.daemon_pid in ended and pid is not None and pid != mount.daemon_pid:
                self.followers[mount.path] = pid
                yield f"pid {pid} answers {mount.path} since: its callbacks were not recorded"

    def peers(self) -> Iterator[Peer]:
        """Yield the connections that the daemons had all the time: a descriptor that was the same
        socket before."""
        for pid, before in self.sockets.items():
            after = of_process(pid) if before and self.lives(pid) else {}
            same = {fd: inode for fd, inode in before.items() if after.get(fd) == inode}
            addresses = peers(pid, set(same.values()))
            for fd, inode in sorted(same.items()):
                if address := addresses.get(inode):
                    yield Peer(pid, fd, address)

    def files(self) -> Iterator[File]:
        """Yield the files that the daemons had open all the time."""
        files = Files(Path("/"))
        for pid, before in self.opened.items():
            after = files_of(files, pid) if before and self.lives(pid) else {}
            for fd, file in sorted(before.items()):
                if after.get(fd) == file:
                    yield File(pid, fd, *file)


def _is_stopped(files: Files, pid: int) -> bool:
    """Return whether SIGSTOP or a debugger stopped a process."""
    process = read_stat(files, pid)
    return process is not None and process.state in ("T", "t")


def mapped(mount: Mount) -> list[Mapped]:
    """Return the code of a mount's daemon."""
    pid = mount.daemon_pid
    assert pid is not None
    libraries = {(library.device, library.inode): library for library in mount.libraries}
    rows = []
    for part in code(Files(Path("/")), pid):
        library = libraries.get((part.device, part.inode))
        build_id = bytes.fromhex(library.build_id or "") if library else b""
        here = library.host_path if library else ""
        place = (part.start, part.end - part.start, part.offset)
        rows.append((pid, *place, part.path, build_id, here))
    return rows
