"""Overhead of recording for a workload: alternating runs without and with the probes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fusetools.core import native
from fusetools.errors import Error
from fusetools.experiments.estimate import estimate
from fusetools.names import CALIBRATION
from fusetools.plan.options import Options
from fusetools.plan.parts import parts
from fusetools.plan.planner import ProbePlan
from fusetools.reasons import Reason
from fusetools.record.job import Job
from fusetools.record.preflight import output_of, prepared
from fusetools.record.session import Interrupted, Recording
from fusetools.record.timed import check, timed
from fusetools.results.estimate import Estimate
from fusetools.results.overhead import Cost, Overhead
from fusetools.session import Took

ALL = "all"


@dataclass(frozen=True)
class _Run:
    seconds: float
    events: int = 0
    bytes: float = 0.0
    pair: int | None = None
    inside: int | None = None
    took: Took | None = None

    @property
    def estimated(self) -> float | None:
        """Time relative to a run without recording, by the overhead that the recording reports."""
        if self.took is None or self.took.ns >= 1e9 * self.seconds:
            return None
        return self.seconds / (self.seconds - self.took.ns / 1e9)


def overhead(
    options: Options,
    repeat: int,
    arguments: Sequence[str],
    progress: Callable[[int, int, str], None],
    only: Sequence[str] = (),
    warn: Callable[[str], None] = lambda _: None,
) -> Overhead:
    """Run the workload in ``repeat`` rounds: without recording, then with each part of it.

    ``progress`` is called before each run with the number of finished runs, of all runs, and the
    next run's name. ``only``: names of parts to run, "all" for the whole; none: every part. Error:
    it cannot be recorded, or the workload failed. KeyboardInterrupt: a signal came.
    """
    with output_of(options) as output, prepared(options, arguments, warn) as prepared_:
        lock, _, user, facts, plan = prepared_
        missing: dict[Reason, Reason] = {}  # by all but the figures
        warnings: dict[str, None] = {}
        lost = 0

        log = options.log
        assert log is not None

        def plain() -> _Run:
            outcome = timed(options.command, user, log)
            check(outcome, options.command, log)
            return _Run(outcome.seconds)

        def recorded(part: ProbePlan) -> _Run:
            nonlocal lost
            lock.state.folders.clear()  # the previous run's are already removed
            job = Job(lock, options, arguments, user, facts, part, output)
            with Recording(job) as recording:
                recording.arm()
                recording.run()
                run = _measured(recording)
            outcome = job.outcome
            check(outcome, options.command, log)
            for m in outcome.missing:  # figures differ between runs
                missing.setdefault(replace(m, figures={}), m)
            warnings.update(dict.fromkeys(outcome.warnings))
            lost += outcome.lost
            return run

        cut = parts(plan)
        plans = {**cut, ALL: plan}
        plans = {name: plans[name] for name in only or plans}
        done: dict[str, list[_Run]] = {name: [] for name in ("", *plans)}
        total = repeat * len(done)
        progress(0, total, "warming up")
        plain()
        for n in range(repeat):
            for i, name in enumerate(done):
                progress(n * len(done) + i, total, name or "without")
                try:
                    done[name].append(recorded(plans[name]) if name else plain())
                except Interrupted as error:
                    raise KeyboardInterrupt from error
        progress(total, total, "")

    base = [run.seconds for run in done.pop("")]
    inside = [r.inside for runs in done.values() for r in runs if r.inside is not None]
    pairs = [r.pair for runs in done.values() for r in runs if r.pair is not None]
    return Overhead(
        workload=options.command,
        plain_seconds=tuple(base),
        costs=tuple(_cost(name, runs, base) for name, runs in done.items()),
        pair_ns=statistics.median(pairs) if pairs else None,
        inside_ns=statistics.median(inside) if inside else None,
        lost=lost,
        missing=tuple(missing.values()),
        warnings=tuple(warnings),
    )


def _cost(name: str, runs: Sequence[_Run], base: Sequence[float]) -> Cost:
    events = statistics.median(run.events for run in runs)
    extra = statistics.median(run.seconds - b for run, b in zip(runs, base))
    estimates = [run.estimated for run in runs if run.estimated is not None]
    return Cost(
        part=name,
        seconds=tuple(run.seconds for run in runs),
        slow_down=_slow_down([run.seconds for run in runs], base),
        events=events,
        bytes=statistics.median(run.bytes for run in runs),
        event_ns=1e9 * extra / events if events else None,
        estimated=statistics.median(estimates) if estimates else None,
        estimated_at_least=any(run.took is not None and run.took.least for run in runs),
    )


def _slow_down(seconds: Sequence[float], base: Sequence[float]) -> Estimate:
    """Return the ratio of the medians, within the interval of the rounds' ratios."""
    of_rounds = estimate([s / b for s, b in zip(seconds, base)])
    ratio = statistics.median(seconds) / statistics.median(base)
    return replace(of_rounds, median=min(max(ratio, of_rounds.low), of_rounds.high))


def _measured(recording: Recording) -> _Run:
    """Return the figures of a whole recording, which is deleted, without the calls for calibration.

    Raise Error if it cannot be put together.
    """
    outcome = recording.job.outcome
    finisher = recording.finisher()
    try:
        whole = finisher.assemble()
        seen = native.scan(str(whole), [], {})["events"]
    except native.CoreError as error:
        raise Error("a run's recording is incomplete", ": ".join(map(str, error.args))) from error
    own = sum(n for name, n in seen if CALIBRATION in name)
    events = sum(n for _, n in seen) - own - 1  # 1: the session's event
    return _Run(
        outcome.seconds,
        events,
        outcome.size_bytes * events / (events + own) if events else 0.0,
        recording.pair_cost,
        finisher.cost,
        outcome.took,
    )
