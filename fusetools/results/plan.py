"""What would be recorded: `record --dry-run`."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.missing import Missing
from fusetools.plan.events import Event, Probe


@dataclass(frozen=True)
class PlannedProbe:
    """``definition``: what tracefs is given; ``mount``: whose daemon's it is, or what else."""

    mount: str
    event: str
    definition: str


@dataclass(frozen=True)
class Planned:
    """``graph``: patterns of the kernel's functions that function_graph would record,
    ``functions`` those it would show; ``places``: the probes by mount, or what else."""

    kernel: str
    events: tuple[Event, ...]
    probes: tuple[PlannedProbe, ...]
    graph: tuple[str, ...]
    missing: tuple[Missing, ...]
    functions: tuple[str, ...]
    places: tuple[tuple[str, tuple[Probe, ...]], ...]

    JSON_HIDDEN = ("functions", "places")
