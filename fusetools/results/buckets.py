"""Log-linear buckets of durations in Parquet files: their counts add up exactly on any engine."""

from __future__ import annotations

# Buckets of an octave, as in native/core/src/answers/hist.rs. A percentile, which is its bucket's
# last value, is at most 1/BUCKETS (0.8 %) too high.
BUCKETS = 128


def bucket(ns: int) -> int:
    """Return the number of the bucket of a duration in ns."""
    shift = max(ns // BUCKETS, 1).bit_length() - 1
    return shift * BUCKETS + (ns >> shift)


def last(number: int) -> int:
    """Return the last ns of a bucket."""
    shift = max(number // BUCKETS - 1, 0)
    return ((number - shift * BUCKETS + 1) << shift) - 1
