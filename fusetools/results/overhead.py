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

    ``seconds``: of each run; ``slow_down``: their median over that of the runs without, in the
    interval that the rounds' own ratios give;
    ``events`` and ``bytes`` of a run: the median; ``event_ns``: what an event costs the workload,
    its extra time over the events, None without events. ``told``: the slow-down that the recordings
    themselves tell, by the CPU time that they took, where nothing runs side by side; None where
    they tell none. ``told_least``: at least that.
    """

    part: str
    seconds: tuple[Seconds, ...]
    slow_down: Estimate
    events: float
    bytes: BytesFloat
    event_ns: float | None
    told: float | None = None
    told_least: bool = False

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
    """``plain``: seconds of the runs without a recording; ``costs``: each part, then all.

    ``pair_ns``: what a probe pair adds to a call of an empty function, ``inside_ns`` the part of it
    that the call's recorded duration holds; None where no callbacks are probed.
    """

    workload: tuple[str, ...]
    plain: tuple[Seconds, ...]
    costs: tuple[Cost, ...]
    pair_ns: float | None
    inside_ns: float | None
    lost: int
    missing: tuple[Missing, ...]
    warnings: tuple[str, ...]
