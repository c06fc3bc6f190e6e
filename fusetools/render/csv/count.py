"""fusetools count as CSV: one line per function, in the format that `fusetools diff` reads."""

from __future__ import annotations

from collections.abc import Iterable

from fusetools.csvfile import written
from fusetools.results.count import COLUMNS, LATENCY, Count, Counts
from fusetools.results.facts import Facts
from fusetools.results.hist import PERCENTILES


def render(result: Counts) -> str:
    return written(COLUMNS, (_row(c, result.facts) for c in result.counts))


def _row(c: Count, facts: Facts) -> list[object]:
    h = c.latency
    latency: Iterable[object] = [""] * (2 + len(LATENCY))
    if h is not None:
        percentiles = (h.percentiles_ns.get(p) for p in PERCENTILES)
        latency = (h.count, h.unmatched, h.min_ns, h.mean_ns, *percentiles, h.max_ns)
    address = "" if c.address is None else f"0x{c.address:x}"
    tail = (facts.seconds, facts.requests.begun, facts.losses.lost)
    return [c.function, c.operation, c.layer, c.count, address, *latency, *tail]
