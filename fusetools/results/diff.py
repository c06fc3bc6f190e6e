"""Comparison of the call counts of two recordings."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class Side:
    """One function in one of two recordings; None: not recorded."""

    count: float | None  # calls, or calls per request or second
    percentiles_ns: dict[str, Ns] = field(default_factory=dict)


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
