"""Figures of a sweep's runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fusetools.plan.experiment import Experiment
from fusetools.results.estimate import Estimate
from fusetools.results.units import BytesEstimate, NsEstimate, SecondsEstimate


@dataclass(frozen=True)
class OperationAt:
    """Requests of one operation at a point, over its runs."""

    layer: str
    count: Estimate
    p50_ns: NsEstimate | None
    p99_ns: NsEstimate | None
    mean_ns: NsEstimate | None
    size_bytes: BytesEstimate | None
    stages_ns: Mapping[str, NsEstimate] = field(default_factory=dict)  # mean of each stage


@dataclass(frozen=True)
class PointFigures:
    """Figures of a point of the grid, over its runs; as in experiments.folder.Run.

    Times and rates are those of the runs that were not recorded, if there are any.
    ``cpu_seconds``: time that all CPUs of the machine were busy, also for other programs; None if
    all runs were recorded. ``relative``: throughput relative to that of the experiment's base, 1:
    equal; None without one. ``relative_class``: its class, and the classes of the interval's ends
    if they differ ("Orange to Yellow").
    """

    point: Mapping[str, str]
    label: str
    seconds: SecondsEstimate
    user_seconds: SecondsEstimate
    system_seconds: SecondsEstimate
    switches: Estimate
    bytes: BytesEstimate | None
    bytes_per_second: Estimate | None
    requests: Mapping[str, OperationAt]
    operations_per_second: Estimate | None = None
    cpu_seconds: SecondsEstimate | None = None
    relative: Estimate | None = None
    relative_class: str = ""


@dataclass(frozen=True)
class LawAt:
    """A law of the experiment at a point.

    ``figure``: as in experiments.named.of_run; ``low`` and ``high``: the range that is expected of
    it. ``measured``: None if the runs cannot tell. ``verdict``: "holds" (the interval of all runs
    is within the range), "differs" or "unseen" (the runs cannot tell). ``since``: what makes more
    or fewer of them since which kernel; "" if not known. ``source``: the publication.
    """

    law: str
    label: str
    figure: str
    low: float
    high: float
    measured: Estimate | None
    verdict: str
    since: str
    source: str


@dataclass(frozen=True)
class PublishedAt:
    """A published value at a point: between ``low`` and ``high``, and the own one (``here``)."""

    label: str
    figure: str
    series: str
    low: float
    high: float
    here: Estimate | None
    source: str


@dataclass(frozen=True)
class Sweep:
    """A sweep. ``points``: those with at least one run, in the grid's order; ``to_do``: number of
    missing runs; ``left_out``: reason by "name=value" that has no points."""

    path: Path
    experiment: Experiment
    repeat: int
    points: tuple[PointFigures, ...]
    to_do: int
    left_out: Mapping[str, str]
    lost: int
    warnings: tuple[str, ...]
    laws: tuple[LawAt, ...] = ()
    published: tuple[PublishedAt, ...] = ()
