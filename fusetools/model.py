"""Frozen results: what every command prints and the Python API returns.

Times are nanoseconds (int) unless a name says otherwise. Renderers read these objects and
nothing else, so text, JSON and CSV carry the same figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LAYERS = ("syscall", "kernel", "request", "daemon")  # from the caller inwards

PERCENTILES = ("50", "90", "95", "99", "99.9")


@dataclass(frozen=True)
class Histogram:
    """Durations of one function in one layer, for one operation.

    ``buckets`` are log2, as (low, high, count), both ends inclusive, only from the first
    to the last that is not empty. ``unmatched``: entries without a return and the reverse.
    ``min``, ``max``, ``mean`` and ``percentiles`` are None or empty where ``count`` is 0.
    """

    operation: str
    layer: str
    function: str
    count: int
    unmatched: int
    min: int | None
    max: int | None
    mean: float | None
    percentiles: dict[str, int]
    buckets: tuple[tuple[int, int, int], ...]
    unit: str = "ns"


@dataclass(frozen=True)
class Count:
    """Calls of one function: entries seen, whether or not their return was."""

    function: str
    operation: str
    layer: str
    count: int
    address: int | None = None


@dataclass(frozen=True)
class Losses:
    """What a recording does not hold though it should."""

    lost: int = 0  # events the kernel says it dropped (LOST, LOST_SAMPLES, trace-cmd's counts)
    throttled: int = 0
    warnings: tuple[str, ...] = ()  # salvaged file, unavailable layers …


@dataclass(frozen=True)
class Histograms:
    histograms: tuple[Histogram, ...]
    losses: Losses
    probe_cost: int | None = None  # ns that a daemon call's duration holds of the probes' own


@dataclass(frozen=True)
class Counts:
    counts: tuple[Count, ...]
    losses: Losses
    seconds: float = 0.0  # length of the recording
    requests: int = 0


@dataclass(frozen=True)
class Session:
    """The recording's own facts, from its ``fusetools:session`` sample (see record/session.py)."""

    facts: dict[str, Any] = field(default_factory=dict)
