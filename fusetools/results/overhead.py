"""What recording costs a workload."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from fusetools.missing import Missing
from fusetools.results.estimate import Estimate
from fusetools.results.units import BytesFloat, Seconds


@dataclass(frozen=True)
class Cost:
    """What a part of the recording costs, or all of it (``part`` is "all").

    ``seconds``: of each run; ``slow_down``: their median divided by that of the runs without
    recording, with the interval of the rounds' own ratios; ``events`` and ``bytes``: the median of
    the runs; ``event_ns``: what an event costs the workload: its extra time divided by the events,
    None without events. ``estimated``: the slow-down that the recordings themselves report, by the
    CPU time that they took, if nothing runs in parallel; None if they report none.
    ``estimated_at_least``: it is a lower bound.
    """

    part: str
    seconds: tuple[Seconds, ...]
    slow_down: Estimate
    events: float
    bytes: BytesFloat
    event_ns: float | None
    estimated: float | None = None
    estimated_at_least: bool = False

    JSON_SHOWN = ("median_seconds", "events_per_second", "bytes_per_second")

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    @property
    def events_per_second(self) -> float:
        return self.events / self.median_seconds

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.median_seconds


@dataclass(frozen=True)
class Overhead:
    """``plain_seconds``: seconds of the runs without a recording; ``costs``: each part, then all.

    ``pair_ns``: what a probe pair adds to a call of an empty function, ``inside_ns``: the part of
    it within the call's recorded duration; None if no callbacks are probed.
    """

    workload: tuple[str, ...]
    plain_seconds: tuple[Seconds, ...]
    costs: tuple[Cost, ...]
    pair_ns: float | None
    inside_ns: float | None
    lost: int
    missing: tuple[Missing, ...]
    warnings: tuple[str, ...]
