"""Medians of repeated runs with their confidence intervals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import comb

from fusetools.results.estimate import Estimate

CONFIDENCE = 0.95


def estimate(values: Sequence[float]) -> Estimate:
    """Return the median of one or more values, with an interval from their order alone.

    Each value is as likely above the true median as below it. So, for any distribution, the k-th
    smallest and the k-th largest of n enclose it with probability 1 - 2 * P(fewer than k of n
    below) (H. A. David, Order Statistics, 7.1). k is the largest that gives at least 0.95.
    """
    ordered = sorted(values)
    n = len(ordered)
    outside = 1  # number of the 2**n outcomes with fewer than k values below the median
    k = 1
    while k < (n + 1) // 2 and 2 * (outside + comb(n, k)) <= (1 - CONFIDENCE) * 2**n:
        outside += comb(n, k)
        k += 1
    confidence = max(1 - 2 * outside / 2**n, 0.0)
    return Estimate(statistics.median(ordered), ordered[k - 1], ordered[n - k], confidence, n)
