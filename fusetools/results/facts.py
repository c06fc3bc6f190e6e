"""What is true of a whole recording, or of the span that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.missing import Missing
from fusetools.results.units import Ns, Seconds
from fusetools.session import Throttled, Took


@dataclass(frozen=True)
class Losses:
    """What a recording should hold but does not."""

    lost: int = 0  # events reported as dropped (LOST, LOST_SAMPLES, trace-cmd's counts)
    throttled: int = 0
    warnings: tuple[str, ...] = ()  # a salvaged file, probes that missed …


@dataclass(frozen=True)
class Requests:
    """FUSE requests of the recording: begun, ended, and those with both seen.

    ``unanswered`` of those begun got no answer from the daemon: the recording ended first, their
    callers were interrupted, or the kernel aborted them.
    """

    begun: int = 0
    ended: int = 0
    matched: int = 0
    unanswered: int = 0


@dataclass(frozen=True)
class Corrected:
    """Costs of recording that are subtracted from durations: ns of each event (``event_ns``) and of
    a callback's two probes (``pair_ns``) that its thread met meanwhile, as measured in the
    recording; None: not measured. ``remaining``: other costs, which are still in the durations."""

    event_ns: Ns | None
    pair_ns: Ns | None
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What is true of a whole recording, or of the span that was asked for."""

    name: str  # the file's, without its folder
    seconds: Seconds
    requests: Requests = Requests()
    losses: Losses = Losses()
    missing: tuple[Missing, ...] = ()
    probe_cost_ns: Ns | None = None  # ns of the probes in a daemon call's duration
    # ns that an event takes, and a callback's two probes; None: not measured in the recording
    event_cost_ns: Ns | None = None
    pair_cost_ns: Ns | None = None
    took: Took | None = None  # by the whole recording, from the recorded processes
    corrected: Corrected | None = None  # None: durations are as recorded
    throttled: tuple[Throttled, ...] = ()
    host: str = ""  # its name
    kernel: str = ""  # its release
    mounts: tuple[str, ...] = ()  # those traced

    JSON_HIDDEN = ("losses",)
    JSON_SHOWN = ("unmatched", "lost", "throttled_events", "warnings")

    @property
    def unmatched(self) -> int:
        """Requests whose end was not seen."""
        return self.requests.begun - self.requests.matched

    @property
    def place(self) -> str:
        """Where it was recorded."""
        return ", ".join(filter(None, (self.host, self.kernel and f"Linux {self.kernel}")))

    @property
    def lost(self) -> int:
        return self.losses.lost

    @property
    def throttled_events(self) -> int:
        return self.losses.throttled

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.losses.warnings
