"""The things of one recording, and what those who make and unmake them share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.facts import HostFacts
from fusetools.output import Output
from fusetools.plan.events import Probe
from fusetools.plan.options import Options
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Reason
from fusetools.record import throttling
from fusetools.record.attached import Attached
from fusetools.record.costs import Costs
from fusetools.record.instance import Instance
from fusetools.record.merger import Merger
from fusetools.record.perf import UNKNOWN, Perf, Since, sizes
from fusetools.record.scratch import Scratch
from fusetools.record.signals import arrived
from fusetools.record.slices import Slices
from fusetools.record.state import Lock
from fusetools.record.tracecmd import TraceCmd
from fusetools.record.tracefs import Tracefs
from fusetools.record.workload import User, Workload
from fusetools.results.record import Outcome
from fusetools.session import Opened, Peer


class Things:
    """What a recording is made of; ``_stop`` and ``_pass_on`` are the session's."""

    scratch: Path  # where it is recorded
    raw: Path  # what perf writes
    raw_tasks: Path | None = None  # what perf writes of per-task events
    started: datetime

    def __init__(
        self,
        lock: Lock,
        options: Options,
        arguments: Sequence[str],
        user: User | None,
        facts: HostFacts,
        plan: ProbePlan,
        output: Output | None = None,
    ) -> None:
        self.output = output
        self.pid = os.getpid()  # the process that measures the probes' cost
        self.warn: Callable[[str], None] = lambda _: None
        self.made: Scratch | None = None
        self.facts = facts
        self.plan = plan
        self.missing = list(plan.missing)
        # Of them, by file: callbacks on which the kernel refused a probe.
        self.callbacks_lost: dict[str, list[Reason]] = {}
        self.lock = lock
        self.state = lock.state
        self.options = options
        self.arguments = tuple(arguments)
        self.user = user
        self.outcome = Outcome()
        self.workload: Workload | None = None
        self.attached: Attached | None = None
        self.perf: Perf | None = None
        self.task_perf: Perf | None = None  # records the per-task events
        self.graph: TraceCmd | None = None
        self.ring: Instance | None = None
        self.slices: Slices | None = None
        self.costs: Costs | None = None  # while it is armed
        self.merger: Merger | None = None  # once nothing is recorded any more
        self.tracefs: Tracefs | None = None
        self.before: dict[str, int] = {}
        self.hits: dict[str, int] = {}
        self.misses: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.refused: list[Probe] = []
        self.daemons: dict[int, int | None] = {}
        self.sockets: dict[int, dict[int, int]] = {}  # theirs, when it began: fd -> inode
        self.peers: tuple[Peer, ...] = ()
        self.limits: dict[int, dict[str, int]] = {}
        self.opened: tuple[Opened, ...] = ()
        # (pid, start, length, offset in the file, path, build id, where it is here) of their code
        self.maps: list[tuple[int, int, int, int, str, bytes, str]] = []
        self.room = sizes(facts.cpus, 0)
        # Of overwriting buffers; None: perf wrote all that happened.
        self.window: native.Window | None = None
        self.held: Path | None = None  # what Now.held() returned, for that
        # From when to when perf and ftrace both recorded; None: perf alone did. ns
        self.span: tuple[int, int] | None = None
        # Of switches: with a stack of their own, with one of another alike, without.
        self.stacks = (0, 0, 0)
        # Which threads may be the workload's, and how many the kernel had started by then.
        self.since: Since | None = None
        self.forks = 0
        self._numbers = UNKNOWN  # of the threads that filters select
        self.pair_cost: int | None = None  # ns of the two probes of a call
        self.event_cost: int | None = None  # ns of an event without a stack
        self.thrown_away = 0.0  # ns of an event that perf looks at and does not record
        self.stacks_ns = 0  # that taking stacks took those whose they are
        self.cost: int | None = None  # ns that a daemon call's duration holds of its probes'
        # By whose they are: what quotas of cgroups had taken before, and during the recording.
        self.quotas: dict[str, dict[str, throttling.Quota]] = {}
        self.stopped_daemons: set[int] = set()
        self.began = time.monotonic()  # the workload, once it has
        self._stopped = False
        self._unmade = False
        self._times_asked = 0
        self._perf_died = False

    @property
    def _callers(self) -> tuple[int, ...]:
        """The workload's first process; of one that ran already also who descends from it."""
        if self.attached:
            return (self.attached.pid, *self.attached.descendants)
        return (self.workload.pid,) if self.workload else ()

    def _folder(self) -> Path:
        """One of our own beside the lock, noted before it is made."""
        path = self.lock.directory / f"perf.{os.urandom(4).hex()}"
        self.state.folders.append(path.name)
        self.lock.write()
        path.mkdir(mode=0o700)
        return path

    def _free(self) -> int:
        """Bytes that may still be written where the recording goes. Error: it is gone."""
        try:
            disk = os.statvfs(self.scratch)
        except OSError as error:
            raise Error(f"cannot write in {self._place()}", error.strerror or "") from error
        return disk.f_bavail * disk.f_frsize

    def _written(self) -> int:
        """Bytes of what perf has written, and of ftrace's events."""
        return sum(self._sizes())

    def _sizes(self) -> tuple[int, int]:
        ring = self.ring.written() if self.ring else 0
        return sum(map(_size, (self.raw, self.raw_tasks))), ring

    @property
    def _perfs(self) -> list[Perf]:
        return [perf for perf in (self.perf, self.task_perf) if perf]

    def _tell_of(self, text: str, seconds: float) -> bool:
        """Pass a command such as "enable EVENT" to the perf that takes that event's stacks."""
        name = text.split()[-1]
        first = next(event for event in self.plan.events if event.stack and event.name == name)
        perf = self.task_perf if first.per_task else self.perf
        return perf is not None and perf.tell(text, seconds)

    def _place(self) -> str:
        """Where the recording goes, in words."""
        return self.output.parent if self.output else str(self.raw.parent)

    def _all_hits(self) -> dict[str, int]:
        """How often each probe was hit since it was made."""
        return self.tracefs.hits(self.plan.probes) if self.tracefs else {}

    def _hits(self) -> dict[str, int]:
        """How often each probe was hit since all was armed."""
        now = self._all_hits() if self.perf else {}
        return {name: n - self.before.get(name, 0) for name, n in now.items()}

    def _pass_on(self, came: signal.struct_siginfo | None) -> bool:
        """Whether that is a signal to end; the workload gets it, too."""
        if came is None or came.si_signo == signal.SIGCHLD:
            return False
        self.outcome.interrupted = True
        self._times_asked += 1
        if self.workload and self._times_asked > 1:  # who asks twice means it
            self.workload.signal(signal.SIGKILL)
        elif self.workload:
            self.workload.pass_on(came)
        return True

    def _asked_to_end(self) -> bool:
        return self._pass_on(arrived(0)) and self._times_asked > 1


def _size(path: Path | None) -> int:
    """Return a file's size in bytes; 0 if it is not there, or its file system is gone."""
    try:
        return path.stat().st_size if path else 0
    except OSError:
        return 0
