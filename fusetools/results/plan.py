"""What would be recorded: `record --dry-run`."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.missing import Missing
from fusetools.plan.events import Event, Probe


@dataclass(frozen=True)
class PlannedProbe:
    """``definition``: what is written to tracefs; ``mount``: the mount whose daemon it probes, or
    another place."""

    mount: str
    event: str
    definition: str


@dataclass(frozen=True)
class Planned:
    """``graph``: patterns of the kernel's functions that function_graph would record,
    ``functions``: those it would show; ``places``: the probes by mount or other place."""

    kernel: str
    events: tuple[Event, ...]
    probes: tuple[PlannedProbe, ...]
    graph: tuple[str, ...]
    missing: tuple[Missing, ...]
    functions: tuple[str, ...]
    places: tuple[tuple[str, tuple[Probe, ...]], ...]

    JSON_HIDDEN = ("functions", "places")
