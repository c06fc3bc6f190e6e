"""The callers in a recording: the workload, or a process that runs already."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

from fusetools.host.cgroup import perf_hierarchy
from fusetools.host.files import Files
from fusetools.host.mounts import opened_on
from fusetools.host.processes import Sleeper, family
from fusetools.host.words import is_cgroup
from fusetools.reasons import Code, Reason
from fusetools.record import cgroup, throttling
from fusetools.record.attached import Attached
from fusetools.record.job import Job
from fusetools.record.perf import Since
from fusetools.record.signals import arrived
from fusetools.record.workload import Workload
from fusetools.session import MOST_OPENED, Opened

GRACE = 5.0  # seconds that a workload has to end after a signal, and one that hangs to go on
KILLED = 2.0  # after SIGKILL
LEFT = 124  # exit status, as timeout(1) has it


class Callers:
    """The callers that a job is about: none, where it records everybody.

    ``workload``: runs, or waits to be released; ``attached``: runs already, ``since``: numbers of
    threads that may be theirs; ``opened``: their files on mounts at the beginning; ``asked``: how
    often a signal asked for the end.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.workload: Workload | None = None
        self.attached: Attached | None = None
        self.since: Since | None = None
        self.opened: tuple[Opened, ...] = ()
        self.quotas: dict[str, throttling.Quota] = {}
        self.asked = 0
        self._forks = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """The workload's first process; of one that ran already also its descendants."""
        if self.attached:
            return (self.attached.pid, *self.attached.descendants)
        return (self.workload.pid,) if self.workload else ()

    @property
    def ended(self) -> bool:
        """True if there were some, and they have ended."""
        ended = self.workload is not None and self.workload.poll()
        return ended or (self.attached is not None and self.attached.ended)

    @property
    def patience(self) -> float:
        """Seconds that the workload has to end after a signal."""
        return GRACE if self.asked < 2 else KILLED

    def fork(self) -> None:
        """Fork the workload, which waits to be started."""
        options = self.job.options
        self.workload = Workload(options.command, self.job.user, os.environ, options.log)

    def attach(self, pid: int) -> None:
        """Take a process that runs already. Raise Error if it cannot be recorded."""
        self.attached = Attached(pid, self.job.user)

    def own_cgroup(self) -> str | None:
        """Put the workload into a cgroup of its own. Return its name for perf; None if none can be
        made: then everybody's events are recorded."""
        assert self.workload is not None
        job = self.job
        hierarchy = perf_hierarchy(Files(Path("/")))
        if hierarchy is None:
            return None
        name = cgroup.name()
        job.state.cgroup = str(cgroup.path(hierarchy, name))
        job.lock.write()
        try:
            if not is_cgroup(hierarchy.own):
                raise OSError(errno.EINVAL, "perf does not take the name of ours")
            made = cgroup.Cgroup(hierarchy, name)
            made.add(self.workload.pid)
        except OSError as error:
            cgroup.remove(Path(job.state.cgroup))
            job.state.cgroup = ""
            message = error.strerror or str(error)
            job.missing.append(Reason(Code.CGROUP_REFUSED, {"message": message}))
            return None
        return made.name

    def look(self) -> None:
        """Note their quotas, open files and thread numbers, before anything is recorded."""
        files, pid_max = Files(Path("/")), self.job.facts.pid_max
        if self.pids:
            self.quotas = throttling.quotas(files, self.pids[0])
        opened = [
            Opened(pid, fd, connection)
            for pid in self.pids
            for fd, connection in opened_on(files, pid)
        ]
        self.opened = tuple(opened[:MOST_OPENED])
        if self.job.plan.by_pid:
            self._forks, last = _forks()
            if self.attached:  # a process that is started after this has a greater number
                self.since = Since(last + 1, pid_max, self.attached.numbers())
            elif self.workload:
                self.since = Since(self.workload.pid, pid_max)

    def start(self) -> None:
        """Release the workload. Raise Error if it cannot run."""
        if self.workload and not self.attached:
            self.workload.start()

    def pass_on(self, came: signal.struct_siginfo | None) -> bool:
        """Return whether that is a signal to end; the workload gets it, too."""
        if came is None or came.si_signo == signal.SIGCHLD:
            return False
        self.job.outcome.interrupted = True
        self.asked += 1
        if self.workload and self.asked > 1:  # the second request is meant
            self.workload.signal(signal.SIGKILL)
        elif self.workload:
            self.workload.pass_on(came)
        return True

    def asked_to_end(self) -> bool:
        """Return whether a signal came, not for the first time."""
        return self.pass_on(arrived(0)) and self.asked > 1

    def abandon(self) -> None:
        """End a workload that was never started, and report reused thread numbers."""
        if self.since and (more := _forks()[0] - self._forks) > self.since.room:
            fix = "sysctl kernel.pid_max=4194304"
            reason = Reason(Code.THREAD_NUMBERS_REUSED, {}, {"threads": more}, fix)
            self.job.missing.append(reason)
        if self.workload:
            self.workload.abandon()

    def note_end(self) -> bool:
        """Return whether the workload has ended, and note its figures then."""
        if self.workload is None or not self.workload.poll():
            return self.workload is None
        self.job.outcome.exit_status = self.workload.exit_status or 0
        self.job.outcome.usage = self.workload.usage
        return True

    def leave(self) -> None:
        """Wait for the workload, once all is written; not for one that hangs."""
        files, outcome = Files(Path("/")), self.job.outcome
        if self.note_end() or self.workload is None:
            return
        pid = self.workload.pid
        written = f"{outcome.output} is written; " if outcome.output else ""
        self.job.warn(f"{written}the workload (pid {pid}) goes on")
        hanging: float | None = None
        end = None if self.asked < 2 else time.monotonic() + KILLED
        while not self.note_end():
            if self.pass_on(arrived(0.5)) and self.asked > 1:
                end = time.monotonic() + KILLED
            hung = [member for member in family(files, pid) if member.hung]
            hanging = (hanging or time.monotonic()) if hung else None
            since = time.monotonic() - hanging if hanging is not None else 0.0
            if since > GRACE or (end is not None and time.monotonic() > end):
                self._name_left(family(files, pid))
                return

    def _name_left(self, sleepers: list[Sleeper]) -> None:
        outcome = self.job.outcome
        outcome.left = True
        outcome.exit_status = LEFT
        for sleeper in sleepers:
            where = f"in {sleeper.function}" if sleeper.function else "in the kernel"
            what = f"waits {where} for a file system" if sleeper.hung else "is alive"
            outcome.warnings.append(f"left behind: {sleeper.comm} (pid {sleeper.pid}) {what}")


def _forks() -> tuple[int, int]:
    """Return how many threads the kernel has started since it runs, and the last one's number."""
    files = Files(Path("/"))
    lines = (files.read("/proc/stat", quiet=True) or "").splitlines()
    forks = next((int(line.split()[1]) for line in lines if line.startswith("processes ")), 0)
    last = (files.read("/proc/loadavg", quiet=True) or "").split()[-1:]
    return forks, int(last[0]) if last else 0
