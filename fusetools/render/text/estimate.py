"""Medians and their confidence intervals as text."""

from __future__ import annotations

from collections.abc import Callable

from fusetools.figures import duration
from fusetools.results.estimate import Estimate


def span(e: Estimate, scale: float, show: Callable[[float], str]) -> str:
    """Return the interval, with one unit if both ends have the same."""
    if e.runs == 1:
        return ""
    low, high = show(scale * e.low), show(scale * e.high)
    value, _, unit = low.partition(" ")
    return f"{value if high.endswith(f' {unit}') else low}-{high}"


def confidence(e: Estimate) -> str:
    """Return the confidence level of the intervals in words."""
    if e.runs == 1:
        return "of one run there is no interval"
    which = "from the order of the runs" if e.confidence >= 0.95 else "the whole range of the runs"
    return f"{100 * e.confidence:.0f} % confidence intervals, {which}"


def seconds(s: float) -> str:
    return duration(1e9 * s)


def interval(e: Estimate, form: str) -> str:
    """Return the interval, each end in a format such as "{:.3f}"."""
    return f"{form.format(e.low)}-{form.format(e.high)}" if e.runs > 1 else ""
