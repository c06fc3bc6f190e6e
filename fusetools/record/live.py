"""Counts without a recording: perf stat on the probes, read when the workload has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.names import CALIBRATION
from fusetools.plan.bundles import unbundled
from fusetools.plan.counting import ANY, LATER, Counted, counting, others_call, too_many
from fusetools.plan.options import Options
from fusetools.reasons import UNTIMED, Reason
from fusetools.record.callers import Callers
from fusetools.record.costs import Costs
from fusetools.record.job import Job
from fusetools.record.perf import Perf
from fusetools.record.preflight import prepared
from fusetools.record.probes import Probes
from fusetools.record.recorders import Recorders
from fusetools.record.session import check_signals, settle, wait_for
from fusetools.record.signals import held_signals

# Layers whose missing parts would have been counted.
COUNTED = ("daemon", "request", "kernel")


@dataclass(frozen=True)
class Live:
    """``counts``: (what, calls), requests of other kinds, and of those without a name, only where
    there were any. ``cost``: ns that a probe adds to each of the daemons' calls, as it was
    measured; None: there is none."""

    counts: tuple[tuple[Counted, int], ...]
    seconds: float
    cost: int | None
    missing: tuple[Reason, ...]
    warnings: tuple[str, ...]
    exit_status: int


def command_line(
    rows: Sequence[Counted],
    perf: Tool,
    output: str,
    control: tuple[str, str],
    pids: Sequence[int] = (),
) -> list[str]:
    """`perf stat` of everybody, or of these processes, until SIGINT; a line of CSV for each row, in
    that order."""
    whose = ["-p", ",".join(map(str, pids))] if pids else ["-a"]
    argv = [perf.path, "stat", *whose, "-x", ",", "-o", output, "-D", "-1"]
    argv += ["--control", f"fifo:{control[0]},{control[1]}"]
    for row in rows:
        argv += ["-e", row.event]
        if row.filter:
            argv += ["--filter", str(row.filter)]
    return argv


def read_counts(text: str, rows: Sequence[Counted]) -> tuple[tuple[Counted, int], ...]:
    """Return the counts of a `perf stat -x ,` file. Raise Error if it is not of these rows."""
    lines = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    counts = [int(line[0]) for line in lines if line[0].isdecimal()]
    if len(lines) != len(rows) or len(counts) != len(rows):
        raise Error("perf did not count all events", f"{len(counts)} of {len(rows)}")
    named = sum(count for row, count in zip(rows, counts) if _is_request(row) and row.operation)
    counted = []
    for row, count in zip(rows, counts):
        if row.function == ANY:
            count -= named
        if not count and _is_request(row) and row.operation in ("", *LATER.values()):
            continue
        counted.append((row, count))
    return tuple(counted)


def _is_request(row: Counted) -> bool:
    return row.layer == "request"


def is_daemons(row: Counted) -> bool:
    """Return whether it is a call of a daemon's, not of the kernel's or our own."""
    return row.layer == "daemon" and row.function != CALIBRATION


def count(options: Options, arguments: Sequence[str]) -> Live:
    """Count while the workload runs. Raise Error if nothing could be counted."""
    with prepared(options, arguments) as (lock, _, user, facts, plan):
        plan, rows = counting(unbundled(plan, lock.number))
        if not rows:
            raise Error("nothing can be counted here", "; ".join(m.why for m in plan.missing))
        job = Job(lock, options, arguments, user, facts, plan)
        job.outcome.warnings += too_many(plan)
        with _Counting(job, rows, others_call(plan, facts)) as counting_:
            counting_.arm()
            counting_.run()
            return counting_.counts()


class _Counting:
    """perf stat on the probes of a job, while its workload runs.

    ``by_process``: the daemons whose calls alone are counted, by a second perf: it costs more, as
    it counts anew at each switch of their threads.
    """

    def __init__(self, job: Job, rows: tuple[Counted, ...], by_process: tuple[int, ...]) -> None:
        self.job, self.rows, self.by_process = job, rows, by_process
        self.probes, self.callers = Probes(job), Callers(job)
        self.recorders: Recorders | None = None
        self.second: Perf | None = None
        self.cost: int | None = None
        self._counting = True

    def __enter__(self) -> _Counting:
        self._signals = held_signals(self.job.outcome)
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stop()
            if self.second:
                self.second.let_go()
            if self.recorders:
                self.recorders.unmake()
            self.probes.remove()
            self.job.lock.write()
            self.job.close()
        finally:
            self._signals.__exit__(None, None, None)

    def arm(self) -> None:
        """Prepare everything, so that calls are counted and the workload waits."""
        self.probes.make()
        costs = Costs()
        try:
            self.callers.fork()
            directory = self.job.folder()
            self.recorders = Recorders(
                self.job, self.probes, directory, Perf, "counts", limited=False
            )
            self.recorders.start(self._line)
            if self.by_process:
                self._start_second(self.recorders)
            if any(row.function == CALIBRATION for row in self.rows):
                self.cost = costs.pair()
        finally:
            costs.close()
        self.probes.armed()
        check_signals()

    def _line(self, perf: Tool, fifos: tuple[str, str]) -> list[str]:
        assert self.recorders is not None
        gone = {probe.recorded_as for probe in self.probes.refused}
        self.rows = tuple(row for row in self.rows if row.event not in gone)
        return command_line(self._rows(False), perf, str(self.recorders.perfs.raw), fifos)

    def _rows(self, by_process: bool) -> tuple[Counted, ...]:
        """Return those of the first perf, or of the second."""
        return tuple(
            row for row in self.rows if by_process == (bool(self.by_process) and is_daemons(row))
        )

    def _start_second(self, recorders: Recorders) -> None:
        assert self.job.facts.perf is not None
        self.second = Perf(self.job.folder())
        argv = command_line(
            self._rows(True),
            self.job.facts.perf,
            f"{recorders.perfs.raw}.daemons",
            self.second.fifos,
            self.by_process,
        )
        self.job.run(self.second, argv, recorders.directory)
        self.second.enable()

    def run(self) -> None:
        """Run the workload until it ends, or a signal asks twice."""
        callers, outcome = self.callers, self.job.outcome
        begin = time.monotonic()
        callers.start()
        wait_for(callers, self.recorders)
        outcome.seconds = time.monotonic() - begin
        settle(self.probes)
        self._stop()
        callers.note_end()

    def _stop(self) -> None:
        outcome, second = self.job.outcome, self.second
        self.callers.abandon()
        if second and self._counting:
            second.pause()
            if not second.stop():
                outcome.warnings.append("the counting of the daemons' calls ended early")
                outcome.failed = True
            second.close()
        if self.recorders:
            self.recorders.stop()
        self._counting = False

    def counts(self) -> Live:
        """Return the counts. Raise Error if there are none."""
        assert self.recorders is not None
        raw, outcome = self.recorders.perfs.raw, self.job.outcome
        if not raw.exists():
            raise Error("nothing was counted", "; ".join(outcome.warnings))
        counted = read_counts(raw.read_text(), self._rows(False))
        if self.second:
            counted += read_counts(Path(f"{raw}.daemons").read_text(), self._rows(True))
            order = {row: at for at, row in enumerate(self.rows)}
            counted = tuple(sorted(counted, key=lambda pair: order[pair[0]]))
        missing = self.job.missing
        return Live(
            counts=tuple(pair for pair in counted if pair[0].function != CALIBRATION),
            seconds=outcome.seconds,
            cost=self.cost,
            missing=tuple(m for m in missing if m.layer in COUNTED and m.code not in UNTIMED),
            warnings=tuple(outcome.warnings),
            exit_status=outcome.exit_status,
        )
