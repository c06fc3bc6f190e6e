"""Result of `record --dry-run`: the planned events and probes."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.plan.events import Event, Probe
from fusetools.reasons import Reason


@dataclass(frozen=True)
class PlannedProbe:
    """A planned probe. ``definition``: the line for tracefs; ``mount``: the mount whose daemon it
    probes, or another place."""

    mount: str
    event: str
    definition: str


@dataclass(frozen=True)
class Planned:
    """A plan. ``graph``: patterns of kernel functions for function_graph, and `!name` for each that
    it leaves out; ``functions``: what it records; ``places``: probes by mount or other place."""

    kernel: str
    events: tuple[Event, ...]
    probes: tuple[PlannedProbe, ...]
    graph: tuple[str, ...]
    missing: tuple[Reason, ...]
    functions: tuple[str, ...]
    places: tuple[tuple[str, tuple[Probe, ...]], ...]

    JSON_HIDDEN = ("functions", "places")
