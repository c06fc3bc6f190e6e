"""The median of repeated runs, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A median with its confidence interval, from ``low`` to ``high``.

    ``confidence``: probability that the interval holds the true median, 0 to 1: at least 0.95 from
    six runs on, less with fewer, when the interval is the whole range.
    """

    median: float
    low: float
    high: float
    confidence: float
    runs: int
