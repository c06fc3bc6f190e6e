"""Ratios of measured pairs, repeated until they are known to 5 %."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from fusetools.experiments.estimate import estimate
from fusetools.results.estimate import Estimate

NEAR = 0.05  # wanted half of an interval, as a share of its median
LEAST, MOST = 6, 30  # rounds: fewer than six have no interval of 95 %
PATIENCE = 300.0  # seconds, after which no round begins


def repeated(
    measures: Mapping[str, Callable[[], float]], base: str, most: int = MOST
) -> dict[str, list[float]]:
    """Call all measures in turn, until the ratio of each one to ``base`` is known to 5 %, or no
    more than ``most`` times. Return the values of each."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    end = time.monotonic() + PATIENCE
    while len(found[base]) < LEAST or (
        len(found[base]) < most
        and time.monotonic() < end
        and not all(is_known(ratio(values, found[base])) for values in found.values())
    ):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def ratio(values: list[float], base: list[float]) -> Estimate:
    """Return the median of the ratios of each round."""
    return estimate([value / of for value, of in zip(values, base)])


def is_known(of: Estimate) -> bool:
    return of.high - of.low <= 2 * NEAR * of.median


def told(of: Estimate) -> str:
    """Format a ratio with its interval, and say where it shows nothing."""
    text = f"{of.median:6.2f} times ({of.low:.2f} to {of.high:.2f})"
    if of.low <= 1 <= of.high and (of.low, of.high) != (1, 1):
        text += ", not measurable"
    return text if is_known(of) else f"{text}, the machine is too noisy"
