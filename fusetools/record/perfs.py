"""The perf recorders: perf, and a second one for the per-task events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fusetools.host.facts import Tool
from fusetools.plan.capabilities import steerable
from fusetools.record.job import Job
from fusetools.record.perf import Perf
from fusetools.record.scratch import TASKS

Line = Callable[[Tool, "tuple[str, str]"], "list[str]"]  # a command line, of perf and its fifos


class Perfs:
    """perf, which writes to ``raw``, and a second one if there are per-task events.

    ``kind``: how perf writes; ``first``, ``second``: None until they are started; ``raw_tasks``:
    the second one's file.
    """

    def __init__(self, job: Job, raw: Path, kind: type[Perf]) -> None:
        self.job, self.raw, self.kind = job, raw, kind
        self.raw_tasks: Path | None = None
        self.first: Perf | None = None
        self.second: Perf | None = None

    @property
    def all(self) -> list[Perf]:
        return [perf for perf in (self.first, self.second) if perf]

    def start(self, line: Line, task_line: Line | None) -> None:
        """Start them, with their events off. ``task_line``: of the second one."""
        # perf tells where the kernel's functions are if one of its events is of the kernel, too.
        tells = any(not (event.ftrace or event.per_task) for event in self.job.plan.events)
        self.first = self._started(line, tells)
        if task_line and any(event.per_task for event in self.job.plan.events):
            self.raw_tasks = self.raw.with_name(TASKS)
            self.second = self._started(task_line, not tells)

    def _started(self, line: Line, symbols: bool) -> Perf:
        assert self.job.facts.perf is not None
        perf = self.kind(self.job.folder(), steerable(self.job.facts.perf))
        perf.symbols = perf.symbols and symbols
        self.job.run(perf, line(self.job.facts.perf, perf.fifos), self.raw.parent)
        return perf

    def enable(self) -> None:
        """Switch the events on. Raise Error if perf could not open one."""
        for perf in self.all:
            perf.enable()

    def kill(self) -> None:
        """Kill them immediately, as they may hold probes that are removed now."""
        for perf in self.all:
            perf.kill()

    def discard(self) -> None:
        """Close the control pipes of the killed ones, and forget these."""
        self.close()
        self.first = self.second = self.raw_tasks = None

    def with_switch(
        self, measure: Callable[[Callable[[bool], None]], float | None]
    ) -> float | None:
        """Return what ``measure`` returns. It gets a function that switches the first one's events
        on and off; they are on afterwards. Return None if perf has much to write, or takes no
        commands."""
        perf = self.first
        assert perf is not None
        if not perf.steered:
            return None

        def switch(on: bool) -> None:
            if not perf.tell("enable" if on else "disable", 1.0):
                raise TimeoutError  # it has much to write, and does not look for commands

        try:
            return measure(switch)
        except TimeoutError:
            perf.enable()
            return None

    def tell_of(self, text: str, seconds: float) -> bool:
        """Send a command such as "enable EVENT" to the perf that takes that event's stacks."""
        name = text.split()[-1]
        first = next(e for e in self.job.plan.events if e.stack and e.name == name)
        perf = self.second if first.per_task else self.first
        return perf is not None and perf.tell(text, seconds)

    @property
    def ended(self) -> bool:
        """True if one of them has ended by itself, except with the last of its processes."""
        return any(perf.ended and not self._complete(perf) for perf in self.all)

    def _complete(self, perf: Perf) -> bool:
        """Return whether this is the second one, and it ended as the daemons did."""
        return perf is self.second and perf.complete

    def written(self) -> int:
        """Return the bytes of what they have written."""
        return sum(map(_size, (self.raw, self.raw_tasks)))

    def complaint(self) -> str:
        """Return why one of them ended by itself."""
        return next(filter(None, (perf.complaint() for perf in self.all)), "perf was killed")

    def pause(self, seconds: float | None = None) -> None:
        """Switch the events off. ``seconds``: to wait for each, None: as long as is needed."""
        for perf in self.all:
            if seconds is None:
                perf.pause()
            elif not perf.ended:
                perf.tell("disable", seconds)

    def stop(self) -> bool:
        """Let them write what they have. Return whether each did."""
        stopped = [self._complete(perf) or perf.stop() for perf in self.all]  # each of them
        return all(stopped)

    def close(self) -> None:
        """Close their control pipes."""
        for perf in self.all:
            perf.close()

    def let_go(self) -> None:
        """Wait until they have closed their events: they keep probes, and the cgroup."""
        for perf in self.all:
            perf.let_go()


def _size(path: Path | None) -> int:
    """Return a file's size in bytes; 0 if it is not there, or its file system is gone."""
    try:
        return path.stat().st_size if path else 0
    except OSError:
        return 0
