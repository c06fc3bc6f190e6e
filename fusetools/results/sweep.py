"""What a sweep's runs amount to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusetools.plan.experiment import Experiment
from fusetools.results.estimate import Estimate


@dataclass(frozen=True)
class OperationAt:
    """One operation's requests at a point, over its runs. Times in ns, size in bytes."""

    layer: str
    count: Estimate
    p50: Estimate | None
    p99: Estimate | None
    mean: Estimate | None
    size: Estimate | None


@dataclass(frozen=True)
class PointFigures:
    """A point of the grid, over its runs; the figures are those of folder.Run."""

    point: Mapping[str, str]
    label: str
    seconds: Estimate
    user: Estimate
    system: Estimate
    switches: Estimate
    bytes: Estimate | None
    bandwidth: Estimate | None
    requests: Mapping[str, OperationAt]

    def to_json(self) -> dict[str, Any]:
        """A point of the grid, in sweep.json and of --json."""
        return {
            "params": dict(self.point),
            "seconds": self.seconds.to_json(),
            "user_seconds": self.user.to_json(),
            "system_seconds": self.system.to_json(),
            "switches": self.switches.to_json(),
            "bytes": self.bytes.to_json() if self.bytes else None,
            "bytes_per_second": self.bandwidth.to_json() if self.bandwidth else None,
            "requests": {
                name: {
                    "layer": r.layer,
                    "count": r.count.to_json(),
                    **{
                        key: value.to_json() if value else None
                        for key, value in (
                            ("p50_ns", r.p50),
                            ("p99_ns", r.p99),
                            ("mean_ns", r.mean),
                            ("size_bytes", r.size),
                        )
                    },
                }
                for name, r in self.requests.items()
            },
        }


@dataclass(frozen=True)
class Sweep:
    """``points``: those with at least one run, in the grid's order; ``to_do``: runs missing yet;
    ``left_out``: "name=value" -> why there are no points of it."""

    path: Path
    experiment: Experiment
    repeat: int
    points: tuple[PointFigures, ...]
    to_do: int
    left_out: Mapping[str, str]
    lost: int
    warnings: tuple[str, ...]
