"""Comparison of the call counts of two recordings."""

from __future__ import annotations

from fusetools.errors import Error
from fusetools.names import LAYERS
from fusetools.results.count import Count, Counts
from fusetools.results.diff import Difference, Differences, Side

Key = tuple[str, str, str]

# Layers whose calls a recording of this detail holds, also where there were none.
_RECORDED = {
    "latency": ("request",),
    "stages": ("request", "syscall"),
    "stacks": ("request", "syscall"),
}


def diff(a: Counts, b: Counts, per: str = "") -> Differences:
    """Compare each function of ``a`` or ``b``. ``per``: "request", "second" or "" for calls.

    A function has no count on a side that did not probe it. A request or system call that did not
    happen on a side counts 0, if that side recorded its layer.
    """
    if per not in ("", "request", "second"):
        raise ValueError(f"per {per!r}: not request or second")
    rows_a, rows_b = _by_key(a), _by_key(b)
    divide_a, divide_b = _divisor(a, per), _divisor(b, per)
    differences = [
        Difference(
            function=key[1],
            operation=key[2],
            layer=key[0],
            a=_side(rows_a.get(key), key, a, divide_a),
            b=_side(rows_b.get(key), key, b, divide_b),
        )
        for key in rows_a.keys() | rows_b.keys()
    ]
    differences = [d for d in differences if d.a.count or d.b.count]
    differences.sort(
        key=lambda d: (
            LAYERS.index(d.layer),
            -abs(d.change if d.change is not None else (d.a.count or d.b.count or 0)),
            -(d.a.count or 0),
            d.function,
            d.operation,
        )
    )
    return Differences(tuple(differences), a.facts, b.facts, per)


def _by_key(counts: Counts) -> dict[Key, Count]:
    return {(c.layer, c.function, c.operation): c for c in counts.counts}


def _divisor(counts: Counts, per: str) -> float:
    facts = counts.facts
    by: float = {"": 1, "request": facts.requests.begun, "second": facts.seconds}[per]
    if by <= 0:
        raise Error(
            f"cannot divide the calls of {facts.name} by its {per}s",
            "it has none",
            "fusetools diff --per second A B" if per == "request" else "fusetools diff A B",
        )
    return by


def _side(count: Count | None, key: Key, counts: Counts, divide: float) -> Side:
    if count is None:
        layer = key[0]
        seen = any(c.layer == layer for c in counts.counts) or layer in _RECORDED.get(
            counts.facts.detail, ()
        )
        return Side(0 if seen and layer in ("request", "syscall") else None)
    n = count.count if divide == 1 else count.count / divide
    if count.latency is None:
        return Side(n)
    latency = count.latency
    whole = (latency.mean_ns or 0) * latency.count  # a CSV file holds no sum
    return Side(n, dict(latency.percentiles_ns), round(whole / divide))
