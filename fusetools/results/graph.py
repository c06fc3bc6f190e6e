"""What the kernel's functions called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class GraphNode:
    """All calls of a kernel function with the same chain of callers.

    ``total_ns``: ns that they took, ``self_time_ns``: the part not spent in (recorded) functions
    that they called. ``children``: most time first.
    """

    function: str
    calls: int
    total_ns: Ns
    self_time_ns: Ns
    children: tuple[GraphNode, ...] = ()


@dataclass(frozen=True, repr=False)
class Graph(Rows):
    """What the kernel's functions called, summed up.

    ``unmatched``: calls whose return was not seen.
    """

    roots: tuple[GraphNode, ...]
    unmatched: int
    facts: Facts

    ROWS = "roots"
    JSON_HIDDEN = ("facts",)


@dataclass(frozen=True)
class GraphCall:
    """One call of a kernel function: ``start_ns`` in ns on the recording's clock.

    ``duration_ns`` is None if its return was not seen; ``children`` are sorted by start.
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
    """Single calls by start, to be iterated once; ``first_ns``: the recording's first event."""

    calls: Iterator[GraphCall]
    first_ns: Ns
    unmatched: int
    facts: Facts

    def __repr__(self) -> str:
        return f"<GraphCalls of {self.facts.name}, to be taken once>"
