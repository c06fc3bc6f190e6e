"""Overhead of recording for a workload."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from fusetools.reasons import Reason
from fusetools.results.estimate import Estimate
from fusetools.results.units import BytesFloat, Seconds


@dataclass(frozen=True)
class Cost:
    """Overhead of a part of the recording, or of all parts (``part`` is "all").

    ``seconds``: elapsed time of each run. ``slow_down``: their median divided by that of the runs
    without recording, with the interval of the rounds' ratios. ``events`` and ``bytes``: medians of
    the runs. ``event_ns``: extra time of the workload per event, None without events.
    ``estimated``: slow-down from the CPU time that the recordings report as overhead, if nothing
    runs in parallel; None if they report none. ``estimated_at_least``: it is a lower bound.
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
    """Overhead of a workload. ``plain_seconds``: elapsed time of the runs without recording;
    ``costs``: of each part, then of all.

    ``pair_ns``: time that a pair of probes adds to a call of an empty function; ``inside_ns``: the
    part of it within the call's recorded duration. Both are None if no callbacks are probed.
    """

    workload: tuple[str, ...]
    plain_seconds: tuple[Seconds, ...]
    costs: tuple[Cost, ...]
    pair_ns: float | None
    inside_ns: float | None
    lost: int
    missing: tuple[Reason, ...]
    warnings: tuple[str, ...]
