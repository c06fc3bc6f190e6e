"""Call trees of kernel functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class GraphNode:
    """All calls of a kernel function with the same chain of callers.

    ``total_ns``: their time; ``self_time_ns``: the part outside recorded callees. ``children``:
    callees, most time first.
    """

    function: str
    calls: int
    total_ns: Ns
    self_time_ns: Ns
    children: tuple[GraphNode, ...] = ()


@dataclass(frozen=True, repr=False)
class Graph(Rows):
    """Call tree of kernel functions, summed over calls.

    ``unmatched``: number of calls whose return was not seen.
    """

    roots: tuple[GraphNode, ...]
    unmatched: int
    facts: Facts

    ROWS = "roots"
    JSON_HIDDEN = ("facts",)


@dataclass(frozen=True)
class GraphCall:
    """One call of a kernel function. ``start_ns``: on the recording's clock.

    ``duration_ns``: None if its return was not seen. ``children``: callees by start.
    """

    function: str
    start_ns: Ns
    duration_ns: Ns | None
    tid: int
    comm: str
    cpu: int
    children: list[GraphCall] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class GraphCalls:
    """Single calls by start; ``calls`` can be iterated once.

    ``first_ns``: time of the recording's first event."""

    calls: Iterator[GraphCall]
    first_ns: Ns
    unmatched: int
    facts: Facts

    def __repr__(self) -> str:
        return f"<GraphCalls of {self.facts.name}, to be taken once>"
