"""The job of one recording: the facts and results that its parts share."""

from __future__ import annotations

import copy
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from fusetools.host.facts import HostFacts
from fusetools.host.files import Files
from fusetools.host.processes import started
from fusetools.output import Output
from fusetools.plan.options import Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Reason
from fusetools.record import graceperiods
from fusetools.record.program import Program
from fusetools.record.signals import with_parent
from fusetools.record.state import Lock
from fusetools.record.workload import User
from fusetools.results.record import Outcome


def ignore(_: str) -> None:
    """Discard a warning."""


class Job:
    """The task of a recording, and the results so far.

    ``plan``, ``missing`` and ``outcome`` change while the parts work: the kernel may refuse a
    probe. ``output``: None if there is no file; ``pid``: the process that measures the probes'
    cost; ``warn``: prints what cannot wait until the end.
    """

    def __init__(
        self,
        lock: Lock,
        options: Options,
        arguments: Sequence[str],
        user: User | None,
        facts: HostFacts,
        plan: ProbePlan,
        output: Output | None = None,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        self.lock = lock
        self.state = lock.state
        self._begin(options, arguments, facts, plan, os.getpid(), user, output, warn)

    def _begin(
        self,
        options: Options,
        arguments: Sequence[str],
        facts: HostFacts,
        plan: ProbePlan,
        pid: int,
        user: User | None = None,
        output: Output | None = None,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        """Set what every job has. ``pid``: 0 where it ran on another host."""
        self.options = options
        self.arguments = tuple(arguments)
        self.facts = facts
        self.plan = plan
        self.user = user
        self.output = output
        self.warn = warn
        self.pid = pid
        self.recorders = [pid] if pid else []
        self.missing = list(plan.missing)
        self.outcome = Outcome()

    def copied(self) -> Job:
        """Return a job on the same host, with the same notes, whose results are its own."""
        other = copy.copy(self)
        other.missing, other.outcome = list(self.missing), Outcome()
        return other

    def lacks(self, reason: Reason) -> None:
        """Add a reason why something is missing, once."""
        if reason not in self.missing:
            self.missing.append(reason)

    def folder(self) -> Path:
        """Make a folder beside the lock, noted before it is made."""
        path = self.lock.directory / f"perf.{os.urandom(4).hex()}"
        self.state.folders.append(path.name)
        self.lock.write()
        path.mkdir(mode=0o700)
        return path

    def note_process(self, pid: int) -> None:
        """Note a process that has to end if the recording is killed."""
        self.recorders.append(pid)
        self.state.processes.append((pid, started(pid) or 0))
        self.lock.write()

    def run(
        self,
        program: Program,
        argv: Sequence[str],
        directory: Path,
        number: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Start a program that gets signal ``number`` if this process is killed, and note it."""
        prepare = partial(with_parent, os.getpid(), number)
        self.note_process(program.start(argv, prepare, directory))

    def servers(self) -> list[int]:
        """Return the traced daemons, and the process that measures the probes' cost: where others
        run the same library, its probes fire there too."""
        mounts = [target.mount for target in self.plan.targets]
        pids = {self.pid, *(pid for mount in mounts for pid in mount.servers)}
        return sorted(pids | {m.daemon_pid for m in mounts if m.daemon_pid is not None})

    def threads(self) -> dict[int, int]:
        """Return the process of each of the daemons' threads: perf's records tell it of most."""
        return threads_of(self.servers())

    def expedite(self, on: bool) -> None:
        """Expedite the kernel's grace periods, while events are closed; noted before."""
        if on and graceperiods.may_be_expedited():
            self.state.expedited = True
            self.lock.write()
            graceperiods.expedite(True)
        elif not on and self.state.expedited:
            self.state.expedited = not graceperiods.expedite(False)

    def close(self) -> None:
        """Remove the folders, and the notes if nothing is left that they list."""
        for name in self.state.folders:
            shutil.rmtree(self.lock.directory / name, ignore_errors=True)
        state = self.state
        if not (state.probes or state.cgroup or state.ftrace or state.instance):
            self.lock.forget()


def threads_of(pids: Iterable[int]) -> dict[int, int]:
    """Return the process of each thread of these processes."""
    files = Files(Path("/"))
    return {
        int(thread): pid
        for pid in pids
        for thread in files.list(f"/proc/{pid}/task")
        if thread.isdigit()
    }
