"""Comparison of the call counts of two recordings."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusetools.reasons import Code, Reason, Value
from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns

# Least ratio of two lengths, and least change in per cent, that the verdict names: of a duration,
# and of an operation's time in that of all requests. Two recordings do not show what is noise;
# `fusetools compare` does.
FASTER = 1.15
CHANGED = 10


@dataclass(frozen=True)
class Side:
    """One function in one of two recordings; None: not recorded."""

    count: float | None  # calls, or calls per request or second
    percentiles_ns: dict[str, Ns] = field(default_factory=dict)
    total_ns: Ns | None = None  # sum of all calls, divided like these; None: unknown


@dataclass(frozen=True)
class Difference:
    """One function in two recordings."""

    function: str
    operation: str
    layer: str
    a: Side
    b: Side

    JSON_SHOWN = ("change", "percent", "p50_change_ns", "p50_percent")

    @property
    def change(self) -> float | None:
        """B's calls minus A's."""
        if self.a.count is None or self.b.count is None:
            return None
        return self.b.count - self.a.count

    @property
    def percent(self) -> float | None:
        """The change in per cent of A; None if A has no calls."""
        return (
            100 * self.change / self.a.count if self.change is not None and self.a.count else None
        )

    @property
    def p50_change_ns(self) -> Ns | None:
        return self.slower("50")

    @property
    def p50_percent(self) -> float | None:
        return self.slower_percent("50")

    @property
    def mean_percent(self) -> float | None:
        """The mean's change in per cent of A's; None if a side has no durations."""
        a, b = (
            side.total_ns / side.count if side.count and side.total_ns else None
            for side in (self.a, self.b)
        )
        return None if a is None or b is None else 100 * (b - a) / a

    def slower(self, percentile: str) -> int | None:
        """Return B's percentile minus A's, in ns."""
        a, b = self.a.percentiles_ns.get(percentile), self.b.percentiles_ns.get(percentile)
        return None if a is None or b is None else b - a

    def slower_percent(self, percentile: str) -> float | None:
        """Return the percentile's change in per cent of A's; None if A's is 0 or unknown."""
        change = self.slower(percentile)
        a = self.a.percentiles_ns.get(percentile)
        return 100 * change / a if change is not None and a else None


@dataclass(frozen=True, repr=False)
class Differences(Rows):
    """Differences by layer, the largest change first."""

    differences: tuple[Difference, ...]
    a: Facts
    b: Facts
    per: str = ""  # divisor of the calls: "request", "second", or "" for none

    ROWS = "differences"
    JSON_SHOWN = ("verdict",)

    @property
    def verdict(self) -> Reason | None:
        """Return which side took less time, and the operation that changed most; None: neither
        is known."""
        a, b = 1e9 * self.a.seconds, 1e9 * self.b.seconds
        ratio = a / b if self.a.command and self.b.command and a > 0 and b > 0 else None
        subject: dict[str, Value] = {}
        figures: dict[str, int | float] = {}
        if ratio is not None:
            figures = {"a_ns": round(a), "b_ns": round(b)}
        most = self._most(ratio)
        if most is not None:
            subject["operation"] = most.operation or most.function
            before, after = most.a.total_ns or 0, most.b.total_ns or 0
            if before:
                figures["time_percent"] = 100 * (after - before) / before
            if most.percent is not None:
                figures["calls_percent"] = most.percent
            # The median shows no change in the slowest calls, and may even show the opposite.
            mean, p50 = most.mean_percent, most.p50_percent
            if p50 is not None and abs(p50) >= CHANGED and p50 * (mean or 0) >= 0:
                figures["p50_percent"] = p50
            elif mean is not None:
                figures["mean_percent"] = mean
        if ratio is None:
            return Reason(Code.DIFF_REQUESTS, subject, figures) if most else None
        if ratio >= FASTER:
            return Reason(Code.DIFF_FASTER, subject, {"times": round(ratio, 2), **figures})
        if ratio <= 1 / FASTER:
            return Reason(Code.DIFF_SLOWER, subject, {"times": round(1 / ratio, 2), **figures})
        return Reason(Code.DIFF_ALIKE, subject, figures)

    def _most(self, ratio: float | None) -> Difference | None:
        """Return the operation whose time changed most in the direction of the whole.

        None: none changed by a considerable part of the time of all requests."""
        requests = [d for d in self.differences if d.layer == "request"]
        whole = max(
            sum(d.a.total_ns or 0 for d in requests), sum(d.b.total_ns or 0 for d in requests)
        )
        changes: list[tuple[float, Difference]] = []
        for d in requests:
            if d.a.count is None or d.b.count is None:
                continue
            less: float = (d.a.total_ns or 0) - (d.b.total_ns or 0)
            if ratio is None or FASTER > ratio > 1 / FASTER:
                less = abs(less)
            elif ratio < 1:
                less = -less
            if less > 0 and 100 * less >= CHANGED * whole:
                changes.append((less, d))
        return max(changes, key=lambda row: row[0])[1] if changes else None
