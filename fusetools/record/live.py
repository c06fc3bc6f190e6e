"""Counts without a recording: perf stat on the probes, read when the workload has ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.facts import Tool
from fusetools.names import CALIBRATION
from fusetools.plan.bundles import unbundled
from fusetools.plan.counting import ANY, Counted, counting, others_call, too_many
from fusetools.plan.options import Options
from fusetools.reasons import UNTIMED, Reason
from fusetools.record.costs import Costs
from fusetools.record.perf import Perf
from fusetools.record.preflight import prepared
from fusetools.record.session import Recording
from fusetools.record.workload import Workload

# What is missing matters where it would have been counted.
COUNTED = ("daemon", "request", "kernel")


@dataclass(frozen=True)
class Live:
    """``counts``: (what, calls), requests of other kinds only where there were any. ``cost``: ns
    that a probe adds to each of the daemons' calls, as it was measured; None: there is none."""

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
    """The counts of a `perf stat -x ,` file. Error: it is not of these rows."""
    lines = [line.split(",") for line in text.splitlines() if line and not line.startswith("#")]
    counts = [int(line[0]) for line in lines if line[0].isdecimal()]
    if len(lines) != len(rows) or len(counts) != len(rows):
        raise Error("perf did not count all events", f"{len(counts)} of {len(rows)}")
    named = sum(count for row, count in zip(rows, counts) if _is_request(row) and row.operation)
    counted = []
    for row, count in zip(rows, counts):
        if row.function == ANY:
            count -= named
            if not count:
                continue
        counted.append((row, count))
    return tuple(counted)


def _is_request(row: Counted) -> bool:
    return row.layer == "request"


def is_daemons(row: Counted) -> bool:
    """Whether it is a call of a daemon's, not of the kernel's or our own."""
    return row.layer == "daemon" and row.function != CALIBRATION


def count(options: Options, arguments: Sequence[str]) -> Live:
    """Counts while the workload runs. Error: nothing could be counted."""
    with prepared(options, arguments) as (lock, _, user, facts, plan):
        plan, rows = counting(unbundled(plan, lock.number))
        if not rows:
            raise Error("nothing can be counted here", "; ".join(m.why for m in plan.missing))
        recording = _Counting(lock, options, arguments, user, facts, plan)
        recording.rows = rows
        recording.by_process = others_call(plan, facts)
        recording.outcome.warnings += too_many(plan)
        with recording:
            recording.arm()
            recording.run()
            return recording.counts()


class _Counting(Recording):
    """As a recording, with perf stat in perf record's place.

    ``by_process``: of which daemons alone their calls are counted, by a second perf: it costs more,
    as it counts anew at each switch of their threads.
    """

    rows: tuple[Counted, ...] = ()
    by_process: tuple[int, ...] = ()
    cost: int | None = None
    second: Perf | None = None

    def arm(self) -> None:
        assert self.facts.perf is not None and self.facts.tracefs is not None
        directory = self._folder()
        self.raw = directory / "counts"
        self._make_probes()
        self.costs = Costs()
        if self.options.command:
            self.workload = Workload(self.options.command, self.user, os.environ)
        self._start_perf(self._rows_command_line)
        if self.by_process:
            self._start_second()
        if any(row.function == CALIBRATION for row in self.rows):
            self.cost = self.costs.pair()
        self.costs.close()
        self.before = self._all_hits()
        self._check_signals()

    def _rows_command_line(self, perf: Tool, fifos: tuple[str, str]) -> list[str]:
        gone = {probe.recorded_as for probe in self.refused}
        self.rows = tuple(row for row in self.rows if row.event not in gone)
        return command_line(self._rows(False), perf, str(self.raw), fifos)

    def _rows(self, by_process: bool) -> tuple[Counted, ...]:
        """Those of the first perf, or of the second."""
        return tuple(
            row for row in self.rows if by_process == (bool(self.by_process) and is_daemons(row))
        )

    def _start_second(self) -> None:
        assert self.facts.perf is not None
        self.second = Perf(self._folder())
        argv = command_line(
            self._rows(True),
            self.facts.perf,
            f"{self.raw}.daemons",
            self.second.fifos,
            self.by_process,
        )
        self._start(self.second, argv, self.raw.parent)
        self.second.enable()

    def _stop(self) -> None:
        if self.second and not self._stopped:
            self.second.pause()
            if not self.second.stop():
                self.outcome.warnings.append("the counting of the daemons' calls ended early")
                self.outcome.failed = True
            self.second.close()
        super()._stop()

    def _full(self) -> bool:
        return False

    def _too_large(self) -> bool:
        return False  # a line for each row

    def counts(self) -> Live:
        if not self.raw.exists():
            raise Error("nothing was counted", "; ".join(self.outcome.warnings))
        counted = read_counts(self.raw.read_text(), self._rows(False))
        if self.second:
            counted += read_counts(Path(f"{self.raw}.daemons").read_text(), self._rows(True))
            order = {row: at for at, row in enumerate(self.rows)}
            counted = tuple(sorted(counted, key=lambda pair: order[pair[0]]))
        return Live(
            counts=tuple(pair for pair in counted if pair[0].function != CALIBRATION),
            seconds=self.outcome.seconds,
            cost=self.cost,
            missing=tuple(m for m in self.missing if m.layer in COUNTED and m.code not in UNTIMED),
            warnings=tuple(self.outcome.warnings),
            exit_status=self.outcome.exit_status,
        )
