"""Histograms in the CernVM-FS client's format, as printed by `cvmfs_talk internal affairs`."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from fusetools.printable import printable
from fusetools.results.hist import Histogram

BINS = 30  # bins [0, 1], [2, 3] … [2^29, 2^30 - 1] ns


QUANTILES = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999)


# Names of operations in the client's order. Operations that the client does not time come last.
NAMES = {
    "lookup": "Lookup",
    "forget": "Forget",
    "batch_forget": "Multi-Forget",
    "getattr": "Getattr",
    "readlink": "Readlink",
    "opendir": "Opendir",
    "releasedir": "Releasedir",
    "readdir": "Readdir",
    "open": "Open",
    "read": "Read",
    "release": "Release",
}


_STARS = 38


def render(histograms: Iterable[Histogram]) -> str:
    """Return the daemon layer's histograms, one per operation."""
    by_operation: dict[str, Histogram] = {}
    for h in histograms:
        if h.layer == "daemon" and h.operation:
            by_operation.setdefault(h.operation, h)
    order = [*(o for o in NAMES if o in by_operation), *(o for o in by_operation if o not in NAMES)]
    text = "Latency distribution of system calls:\n"
    for operation in order:
        text += NAMES.get(operation) or printable(operation.capitalize())
        text += "\n"
        text += distribution(*bins(by_operation[operation]))
    return text


def bins(h: Histogram) -> tuple[list[int], int]:
    """Return (counts of 30 bins, overflow)."""
    counts, overflow = [0] * BINS, 0
    for low, _, n in h.buckets:
        index = max(low.bit_length() - 1, 0)
        if index < BINS:
            counts[index] += n
        else:
            overflow += n
    return counts, overflow


def distribution(counts: list[int], overflow: int) -> str:
    """Return one histogram: bins, overflow, total, quantiles."""
    total = sum(counts) + overflow
    digits = max(len(str(n)) for n in [*counts, overflow]) + 4
    stars = [_STARS * n // total if total else 0 for n in counts]
    over = _STARS * overflow // total if total else 0
    width = max(*stars, over, 12)

    def row(label: str, count: str, rest: str) -> str:
        return f"{label:>24} {'|' if count == 'count' else ':'} {count:>{digits}} | {rest} |\n"

    text = row("nsec", "count", f"{'distribution':>{width}}")
    for i, (n, star) in enumerate(zip(counts, stars)):
        low, high = (1 << i if i else 0), (2 << i) - 1
        text += row(f"{low:>10} -> {high:>10}", str(n), f"{'*' * star:>{width}}")
    text += row("overflow", str(overflow), f"{'*' * over:>{width}}")
    text += f"{'total':>24} : {total:>{digits}}\n\n\nQuantiles\n"
    text += ",".join(f"{q:.4f}" for q in QUANTILES) + "\n"
    text += ",".join(str(quantile(counts, total, q)) for q in QUANTILES) + "\n"
    return text + "End Quantiles\n" + "-" * 23 + "\n"


def quantile(counts: list[int], total: int, q: float) -> int:
    """Return a quantile in ns as the client does: linear within a bin; an overflow is 2^30."""
    rest = int(total * q)
    for i, n in enumerate(counts):
        if rest <= n:
            low, high = (1 << i if i else 0), 2 << i
            return low + int(_single((high - low) * _single(rest / n))) if n else low
        rest -= n
    return 1 << BINS


def _single(x: float) -> float:
    """Round ``x`` to single precision, which the client uses."""
    return float(struct.unpack("f", struct.pack("f", x))[0])
