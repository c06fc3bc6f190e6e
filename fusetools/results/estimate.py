"""Median of repeated runs with its confidence interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A median with its confidence interval, from ``low`` to ``high``.

    ``confidence``: probability that the interval holds the true median, 0 to 1. It is at least 0.95
    from six runs on. With fewer runs it is lower, and the interval is the whole range.
    """

    median: float
    low: float
    high: float
    confidence: float
    runs: int
