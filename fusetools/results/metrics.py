"""Figures for monitoring systems: counts that only grow, and the state of this moment."""

from __future__ import annotations

from dataclasses import dataclass, field

CLASSIC = 27  # classic buckets with an upper bound: 2^n us, n from 0 to 26
SCHEMA = 3  # native buckets: 2^SCHEMA an octave


@dataclass
class Histogram:
    """Durations.

    ``seconds``: their sum; ``classic``: number of durations by the smallest n of which 2^n us
    (CLASSIC: any) is not exceeded; ``native``: by that of which 2^(n / 8) s is not exceeded;
    ``zeros``: durations of 0 ns, in no native bucket.
    """

    count: int = 0
    seconds: float = 0.0
    classic: dict[int, int] = field(default_factory=dict)
    native: dict[int, int] = field(default_factory=dict)
    zeros: int = 0

    def below(self) -> list[tuple[float, int]]:
        """Return the upper bounds of the classic buckets in seconds, each with the number of
        durations up to it. The last bound is infinite."""
        found, below = [], 0
        for number in range(CLASSIC):
            below += self.classic.get(number, 0)
            found.append(((1 << number) / 1e6, below))
        return [*found, (float("inf"), self.count)]

    def spans(self) -> list[tuple[int, list[int]]]:
        """Return the native buckets as runs: number of the first, and the counts from there."""
        runs: list[tuple[int, list[int]]] = []
        for number in sorted(self.native):
            if not runs or number != runs[-1][0] + len(runs[-1][1]):
                runs.append((number, []))
            runs[-1][1].append(self.native[number])
        return runs


Labels = dict[str, str]


@dataclass(frozen=True)
class Family:
    """Samples of one name. ``kind``: "counter", "gauge" or "histogram", which decides the type of
    values; ``unit``: "" for a plain number."""

    name: str
    kind: str
    unit: str
    help: str
    samples: tuple[tuple[Labels, float | Histogram], ...]
