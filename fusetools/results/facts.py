"""Facts about a recording that accompany each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusetools.reasons import Reason
from fusetools.results.removed import Removed
from fusetools.results.units import Ns, Seconds
from fusetools.session import Throttled, Took


@dataclass(frozen=True)
class Losses:
    """Events that a recording lacks.

    ``lost``: events reported as dropped (LOST, LOST_SAMPLES, trace-cmd's counts); ``warnings``:
    e.g. a salvaged file or probes that missed calls."""

    lost: int = 0
    throttled: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Requests:
    """Numbers of FUSE requests whose begin, end, or both (``matched``) were seen.

    ``unanswered``: begun requests without a reply, as the recording ended first, their callers were
    interrupted, or the kernel aborted them.
    """

    begun: int = 0
    ended: int = 0
    matched: int = 0
    unanswered: int = 0


@dataclass(frozen=True)
class Corrected:
    """Measured overhead that is subtracted from durations; None: not measured.

    ``event_ns``: for each event of the thread meanwhile; ``pair_ns``: for each two probes of a
    callback. ``remaining``: names of other costs, which are still in the durations."""

    event_ns: Ns | None
    pair_ns: Ns | None
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Facts about a recording, or about the selected span of it."""

    name: str  # file name without its directory
    seconds: Seconds
    requests: Requests = Requests()
    losses: Losses = Losses()
    missing: tuple[Reason, ...] = ()
    probe_cost_ns: Ns | None = None  # the part of a callback's duration that its probes take
    # Costs of an event and of a callback's two probes; None: not measured in the recording.
    event_cost_ns: Ns | None = None
    pair_cost_ns: Ns | None = None
    took: Took | None = None  # overhead of the whole recording
    corrected: Corrected | None = None  # None: durations are as recorded
    throttled: tuple[Throttled, ...] = ()
    host: str = ""  # host name
    kernel: str = ""  # kernel release
    mounts: tuple[str, ...] = ()  # mount points of the traced mounts
    command: tuple[str, ...] = ()  # the recorded workload, which ran to its end
    detail: str = ""  # of fusetools record: "latency", "stages" or "stacks"; "": unknown
    removed: tuple[Removed, ...] = ()  # filters that removed all requests

    JSON_HIDDEN = ("losses",)
    JSON_SHOWN = ("unmatched", "lost", "throttled_events", "warnings")

    @property
    def unmatched(self) -> int:
        """Number of begun requests whose end was not seen."""
        return self.requests.begun - self.requests.matched

    @property
    def place(self) -> str:
        """Host and kernel of the recording as text."""
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


def unlike(sides: Sequence[tuple[str, Facts]]) -> list[str]:
    """Return why figures of recordings may differ although their workloads do not.

    ``sides``: the name of each recording, and its facts."""
    notes = []
    mounts = [set(f.mounts) for _, f in sides if f.mounts]
    apart = mounts and not set.intersection(*mounts)
    for what, said in (
        (
            "on different mounts",
            [f"on {', '.join(f.mounts)}" if apart and f.mounts else "" for _, f in sides],
        ),
        ("on different hosts or kernels", [f.place and f"on {f.place}" for _, f in sides]),
        (
            "in different detail, whose overhead differs",
            [f.detail and f"with --detail {f.detail}" for _, f in sides],
        ),
    ):
        known: dict[str, str] = {}
        for (name, _), text in zip(sides, said):
            if text:
                known.setdefault(text, name)
        if len(known) > 1:
            where = "; ".join(f"{name} {text}" for text, name in known.items())
            notes.append(f"recorded {what}: {where}")
    return notes
