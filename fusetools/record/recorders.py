"""The recorders of a job: perf (perfs.py), ftrace's ring (instance.py), function_graph (graph.py).

They are started, checked and stopped together. Each is noted before it is made or as soon as it
runs, so that whoever cleans up after a killed recording finds it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fusetools.errors import Error
from fusetools.figures import binary, size
from fusetools.plan.ftrace import OF_BOTH, all_by_perf
from fusetools.record import instance
from fusetools.record.costs import Costs
from fusetools.record.graph import Graph
from fusetools.record.job import Job, threads_of
from fusetools.record.perf import UNKNOWN, Perf, Since, Threads, buffer_size, sizes
from fusetools.record.perfs import Line, Perfs
from fusetools.record.preflight import ended
from fusetools.record.probes import Probes
from fusetools.record.scratch import DATA, RING

FORMATS = 1 << 20  # bytes of a recording beside its records
NEVER = (1 << 64) - 1  # ns


class Recorders:
    """The recorders of a job, which write into ``directory``.

    ``kind``: how perf writes; ``data``: the name of its file; ``limited``: it fills a disk, up to
    --max-size. ``threads``: those that filters select; ``span``: ns from when to when perf and
    ftrace both recorded, None: perf alone did; ``lost``: events that were dropped, by whom.
    """

    def __init__(
        self,
        job: Job,
        probes: Probes,
        directory: Path,
        kind: type[Perf] = Perf,
        data: str = DATA,
        limited: bool = True,
    ) -> None:
        self.job, self.probes = job, probes
        self.directory, self.limited = directory, limited
        self.perfs = Perfs(job, directory / data, kind)
        self.ring: instance.Instance | None = None
        self.graph: Graph | None = None
        self.room = sizes(job.facts.cpus, 0)
        self.threads = UNKNOWN
        self.thrown_away = 0.0  # ns of an event that perf looks at and does not record
        self.span: tuple[int, int] | None = None
        self.lost: dict[str, int] = {}
        self.died = False
        self._began = time.monotonic()
        self._stopped = False

    # Bytes

    def free(self) -> int:
        """Return the bytes that may still be written where the recording goes. Raise Error if it
        is gone."""
        try:
            disk = os.statvfs(self.directory)
        except OSError as error:
            raise Error(f"cannot write in {self._place()}", error.strerror or "") from error
        return disk.f_bavail * disk.f_frsize

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of what perf has written, and of ftrace's events."""
        return self.perfs.written(), self.ring.written() if self.ring else 0

    def written(self) -> int:
        return sum(self.sizes())

    def make_room(self) -> None:
        """Choose the size of buffers, and the limit of files, by the free disk."""
        job = self.job
        copies = job.options.call_graph == "dwarf"
        both = any(event.ftrace for event in job.plan.events)
        self.room = sizes(job.facts.cpus, self.free(), copies, both)
        if job.options.max_size < self.room.limit:
            self.room = replace(self.room, limit=job.options.max_size)

    def _place(self) -> str:
        """Return where the recording goes, in words."""
        return self.job.output.parent if self.job.output else str(self.directory)

    # Start

    def start_graph(self) -> None:
        """Start function_graph, paused."""
        self.graph = Graph(self.job, self.probes.tracefs.root, self.directory)
        self.graph.start(self.free())

    def make_ring(self) -> None:
        """Make ftrace's instance for the events that are planned for it, off. If there can be none,
        perf records them."""
        job = self.job
        if not any(event.ftrace for event in job.plan.events):
            return
        job.state.instance = instance.new_name()
        job.lock.write()
        root = self.probes.tracefs.root
        ring = instance.Instance(root, job.state.instance, self.directory / RING)
        together = min(instance.BUFFERS, self.free() // 8)
        follow = any(event.ftrace and event.whose for event in job.plan.events)
        together //= 2 if follow else 1  # two have no more room than one
        size = buffer_size(job.facts.cpus, together, instance.LARGEST, instance.SMALLEST)
        try:
            pid = ring.make(job.plan.clock, size, self.room.limit, follow)
        except OSError as error:
            self._remove_ring(ring)
            ring.output.unlink(missing_ok=True)
            job.plan = replace(job.plan, events=all_by_perf(job.plan.events), in_part=False)
            why = error.strerror or str(error)
            job.outcome.warnings.append(f"perf recorded all, which costs more: {ring.path}: {why}")
            return
        job.note_process(pid)
        ring.buffers = size * job.facts.cpus * (2 if ring.following else 1)
        self.ring = ring

    def _remove_ring(self, ring: instance.Instance) -> None:
        if instance.remove(ring.path):
            self.job.state.instance = ""
        else:
            why = f"the ftrace instance {ring.path} cannot be removed: fusetools clean"
            self.job.outcome.warnings.append(why)

    def start(
        self,
        line: Line,
        task_line: Line | None = None,
        since: Since | None = None,
        costs: Costs | None = None,
        callers: Sequence[int] = (),
    ) -> None:
        """Start perf and ftrace, with their events on.

        ``task_line``: of the second perf; ``costs``: measures what a filter costs; ``callers``:
        processes.

        Probes that cannot be placed show only then: they are left out. Raise Error if perf or
        ftrace does not record for another reason.
        """
        job = self.job
        for tried in (False, True):
            daemons = sorted(tid for tid, pid in job.threads().items() if pid != job.pid)
            self.threads = Threads(since, daemons)
            self.perfs.start(line, task_line)
            try:
                self._follow(callers)
                self._enable(costs)
                break
            except Error:
                if self.ring:
                    self.ring.clear()
                self.perfs.kill()
                refused = [] if tried else self.probes.unplaceable()
                # perf knows daemons by number; for a user of sudo it may be another's by now
                strict = bool(job.options.mounts) or job.user is not None
                if not refused and (not ended(job.plan, strict) or tried):
                    raise
                self.perfs.discard()
                for probe, why in refused:
                    self.probes.refuse(probe, why)
        if self.ring:
            self.ring.start()
            self.ring.resume()

    def _follow(self, callers: Sequence[int]) -> None:
        """Have ftrace follow the threads of daemons and callers. One that is started meanwhile is
        followed with the thread that starts it, or found afterwards."""
        followed: set[int] = set()
        while self.ring:
            pids = {*self.job.servers(), *callers} - {self.job.pid}
            new = {*threads_of(pids)} - followed
            if not new:
                return
            followed |= new
            try:
                self.ring.follow(sorted(new))
            except OSError as error:
                raise Error("ftrace cannot follow threads", error.strerror or "") from error

    def _enable(self, costs: Costs | None) -> None:
        events = [event for event in self.job.plan.events if event.ftrace and self.ring]
        later = [event for event in events if event.name in OF_BOTH]
        if self.ring:  # while perf begins
            self.ring.choose((e for e in events if e not in later), self.threads)
        self.perfs.enable()
        if self.ring and costs and later:
            # perf looks at each event that it has a filter for.
            self.thrown_away = self.perfs.with_switch(costs.thrown_away) or 0.0
        if self.ring:  # perf is to be told before it, of each
            self.ring.choose(later, self.threads)

    def resume(self) -> None:
        """Start function_graph's events, and the span that all record."""
        if self.graph:
            self.graph.resume()
        if self.ring:
            self.span = time.monotonic_ns(), NEVER

    def begin(self) -> None:
        """Note that the workload begins."""
        self._began = time.monotonic()

    # Check

    @property
    def ended(self) -> bool:
        """True if perf, or what empties ftrace's buffers, has ended by itself, or both together
        have written enough."""
        return self.perfs.ended or bool(self.ring and self.ring.ended) or self._at_limit()

    def halt(self) -> bool:
        """Pause all, as one of them has ended. Return whether that is new."""
        new, self.died = not self.died, True
        self._end_span()
        if self.ring:
            self.ring.pause()
        if new:
            self.perfs.pause(5.0)
        return new

    def _at_limit(self) -> bool:
        """Return whether --max-size is reached."""
        return self.written() >= self.job.options.max_size

    def _full(self) -> bool:
        """Return whether perf stopped at its limit, or another process filled the disk."""
        if not self.limited:
            return False
        try:
            full = max(self.sizes()) >= self.room.limit or self._at_limit()
            return full or self.free() == 0
        except Error:
            return False

    def too_large(self) -> bool:
        """Return whether there is soon no room to keep what is written, as others fill the disk,
        too, or trace-cmd has written too much. (perf has its own limit.)"""
        job = self.job
        if self._stopped or not self.limited:
            return False
        raw = self.written()
        why = f"No space left on device for more of it ({self._place()})"
        # The buffers' contents are still to come, and the file is there twice for a moment.
        buffers = self.room.buffer * job.facts.cpus * len(self.perfs.all)
        buffers += self.ring.buffers if self.ring else 0
        needed = raw + 2 * (buffers + FORMATS)
        parts = 0
        if self.graph is not None:
            parts, kept = self.graph.sizes()
            needed = raw + kept
        try:
            if self.free() > needed:
                if parts < job.options.max_size:
                    return False
                why = f"it reached {binary(job.options.max_size)} (--max-size)"
        except Error as error:
            why = f"{self._place()}: {error.why}"
        job.outcome.warnings.append(f"the recording ended early: {why}")
        job.outcome.failed = True
        return True

    def why_ended(self) -> str:
        """Return why a recorder ended by itself."""
        if self._at_limit():
            rate = self.written() / max(time.monotonic() - self._began, 1e-3)
            limit = f"{binary(self.job.options.max_size)} (--max-size)"
            return f"it reached {limit}, at {size(rate)}/s"
        if self._full():
            return f"No space left on device for more of it ({self._place()})"
        if self.ring and self.ring.ended and not self.ring.whole:
            return self.ring.complaint()
        return self.perfs.complaint()

    # Stop

    def _end_span(self) -> None:
        if self.span and self.span[1] == NEVER:
            self.span = self.span[0], time.monotonic_ns()

    def stop(self, paused: Callable[[], None] = lambda: None) -> None:
        """Stop all of them, in order; idempotent. ``paused``: called once nothing is recorded any
        more. They may still hold probes: unmake()."""
        if self._stopped:
            return
        self._stopped = True
        job = self.job
        self._end_span()
        if self.graph:
            self.graph.pause()
        ring_died = self.ring is not None and self.ring.ended
        if self.ring:
            self.ring.end()
        if self.perfs.first and self.perfs.first.process is None:
            self.perfs.close()
        elif self.perfs.first:
            died = self.perfs.ended
            self.perfs.pause()
            paused()
            job.expedite(True)
            whole = self.perfs.stop() and not died
            if self.ring:
                whole = self.ring.stop() and not ring_died and whole
            if not whole or self._full():
                job.outcome.warnings.append(f"the recording ended early: {self.why_ended()}")
                job.outcome.failed = True
            self.perfs.close()
        if self.graph:
            self.graph.stop()
        dropped = {"ftrace": self.ring, "trace-cmd": self.graph}
        self.lost = {name: by.lost for name, by in dropped.items() if by and by.lost}

    def unmake(self) -> None:
        """Remove ftrace's instance, and wait until perf has closed its events."""
        if self.ring:
            self._remove_ring(self.ring)
        self.perfs.let_go()
        self.job.state.processes = []
        self.job.expedite(False)
