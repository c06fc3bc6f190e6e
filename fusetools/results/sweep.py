"""Figures of a sweep's runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class PointFigures:
    """Figures of a point of the grid, over its runs; as in experiments.folder.Run."""

    point: Mapping[str, str]
    label: str
    seconds: SecondsEstimate
    user_seconds: SecondsEstimate
    system_seconds: SecondsEstimate
    switches: Estimate
    bytes: BytesEstimate | None
    bytes_per_second: Estimate | None
    requests: Mapping[str, OperationAt]


@dataclass(frozen=True)
class LawAt:
    """A law of the experiment at a point.

    ``verdict``: "holds" (the requests of all runs are within the expected ones and ``slack`` more),
    "differs", or "unseen" (requests were not recorded, or lost). ``requests``: None if unseen.
    ``since``: what makes more of them since which kernel, if there are more; "" if not known.
    """

    law: str
    label: str
    operation: str
    expected: int
    slack: int
    requests: Estimate | None
    verdict: str
    since: str


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
