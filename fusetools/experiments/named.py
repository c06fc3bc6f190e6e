"""Figures of an experiment's runs by their names, as laws and published values use them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusetools.experiments.estimate import estimate
from fusetools.experiments.folder import Run
from fusetools.plan.experiment import Point, amount
from fusetools.results.estimate import Estimate

MIB = 1 << 20

RELATIVE = "relative"  # throughput relative to another point: no figure of a single run


def _cpu(run: Run) -> float | None:
    """Return the time in ns that the machine's CPUs were busy for each operation."""
    return 1e9 * run.cpu / run.operations if run.cpu is not None and run.operations else None


# Figures of a run as a whole; the others are of its requests.
OF_RUNS: dict[str, Callable[[Run], float | None]] = {
    "operation.cpu_ns": _cpu,
    "seconds": lambda run: run.seconds,
    "operations_per_second": lambda run: run.rate,
    "bytes_per_second": lambda run: run.bandwidth,
    "switches": lambda run: run.switches,
}


def is_count(name: str) -> bool:
    """Return whether a figure is a number of requests, or a ratio of them: exact in each run."""
    return name not in OF_RUNS and name != RELATIVE and "." not in name


def of_run(run: Run, name: str, point: Point) -> float | None:
    """Return a figure of a run, None if the run cannot tell.

    ``name`` is one of OF_RUNS, or an operation's name for its number of requests. OPERATION/PARAM
    is the requests per unit of the parameter: per MiB if its value has a suffix such as 64M;
    OPERATION/OPERATION is the ratio of their requests. OPERATION.size_bytes is the mean size of
    the requests, OPERATION.STAGE_ns the mean time in a stage.
    """
    if name in OF_RUNS:
        return OF_RUNS[name](run)
    if not run.recorded or not run.requests or run.lost:
        return None
    counted, _, per = name.partition("/")
    operation, _, detail = counted.partition(".")
    requests = run.requests.get(operation)
    if detail == "size_bytes":
        return requests.size if requests else None
    if detail:
        return requests.stages.get(detail.removesuffix("_ns")) if requests else None
    count = requests.count if requests else 0
    if not per:
        return count
    if other := run.requests.get(per):
        return count / other.count
    value = point.get(per, "")
    units = amount(value)
    if not units:
        return None
    return count / units if value.isdigit() else count * MIB / units


def values(runs: Sequence[Run], name: str, point: Point) -> list[float] | None:
    """Return a figure of each of a point's runs; None: there are none, or one cannot tell."""
    runs = timed(runs) if name in OF_RUNS else [run for run in runs if run.recorded]
    known = [v for run in runs if (v := of_run(run, name, point)) is not None]
    return known if known and len(known) == len(runs) else None


def of_runs(runs: Sequence[Run], name: str, point: Point) -> Estimate | None:
    """Return a figure over a point's runs; None as in values()."""
    known = values(runs, name, point)
    return estimate(known) if known else None


def timed(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs that were not recorded, or all runs if there are none of these."""
    return [run for run in runs if not run.recorded] or runs


def ratio(a: Estimate, b: Estimate) -> Estimate | None:
    """Return a / b. Its interval holds the quotients of all values in the intervals of both."""
    if b.low <= 0 or not math.isfinite(a.high / b.low):
        return None
    confidence = max(a.confidence + b.confidence - 1, 0.0)  # both intervals hold (Bonferroni)
    runs = min(a.runs, b.runs)
    return Estimate(a.median / b.median, a.low / b.high, a.high / b.low, confidence, runs)


def throughput_ratio(runs: Sequence[Run], base: Sequence[Run]) -> Estimate | None:
    """Return the throughput relative to that of other runs, which do the same work: the quotient
    of operations per second if both tell them, else of bytes per second, else of the times."""
    for name in ("operations_per_second", "bytes_per_second"):
        one, other = of_runs(runs, name, {}), of_runs(base, name, {})
        if one and other:
            return ratio(one, other)
    one, other = of_runs(base, "seconds", {}), of_runs(runs, "seconds", {})
    return ratio(one, other) if one and other else None
