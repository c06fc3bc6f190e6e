"""What is true of a whole recording, or of the span that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusetools.missing import Missing
from fusetools.session import Throttled


@dataclass(frozen=True)
class Losses:
    """What a recording does not hold though it should."""

    lost: int = 0  # events the kernel says it dropped (LOST, LOST_SAMPLES, trace-cmd's counts)
    throttled: int = 0
    warnings: tuple[str, ...] = ()  # a salvaged file, probes that missed …


@dataclass(frozen=True)
class Requests:
    """FUSE requests of the recording: sent, ended, and those of which both were seen.

    ``unanswered`` of those begun got no answer of the daemon: not by the recording's end, or their
    callers were interrupted, or the kernel aborted them.
    """

    begun: int = 0
    ended: int = 0
    matched: int = 0
    unanswered: int = 0


@dataclass(frozen=True)
class Facts:
    """What is true of a whole recording, or of the span that was asked for."""

    name: str  # of the file, without its folder
    seconds: float
    requests: Requests = Requests()
    losses: Losses = Losses()
    missing: tuple[Missing, ...] = ()
    probe_cost: int | None = None  # ns that a daemon call's duration holds of the probes' own
    # ns that an event takes, and a callback's two probes; None: not measured in the recording
    event_cost: int | None = None
    pair_cost: int | None = None
    throttled: tuple[Throttled, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """``lost`` is a number of events."""
        return {
            "recording": self.name,
            "seconds": self.seconds,
            "requests": vars(self.requests),
            "lost": self.losses.lost,
            "throttled": self.losses.throttled,
            "warnings": list(self.losses.warnings),
            "unavailable": [vars(m) for m in self.missing],
            "probe_cost_ns": self.probe_cost,
            "cgroups": [vars(t) for t in self.throttled],
        }
