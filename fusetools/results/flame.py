"""Stacks for flame graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.results.facts import Facts
from fusetools.results.rows import MOST, table
from fusetools.results.units import Ns

GRAPHS = ("on-cpu", "off-cpu", "off-wake", "requests", "graph")


STATES = ("blocked", "runnable", "preempted", "blocked_or_runnable")


# Kinds of frames, in the order of a picture's legend.
KINDS = ("system call", "VFS", "FUSE", "scheduler", "kernel", "daemon", "library", "program")


class Amount(NamedTuple):
    """How often, and how long in all; None for samples that no clock took."""

    times: int
    total_ns: Ns | None


NONE = Amount(0, 0)


@dataclass(frozen=True)
class LeftOut:
    """What a picture does not show.

    ``idle``: a daemon's threads without a request; ``own``: the workload outside requests;
    ``others``: what filters excluded, and other processes.
    """

    idle: Amount = NONE
    own: Amount = NONE
    others: Amount = NONE


@dataclass(frozen=True)
class Named:
    """What named addresses in stacks.

    ``source``: "recording", the path given instead, or "" for none; ``addresses``: number of
    different ones, ``nameless``: number of them without a name.
    """

    source: str
    addresses: int
    nameless: int


@dataclass(frozen=True, repr=False)
class Stacks:
    """Stacks and their weights, for flame graphs.

    ``graph``: one of GRAPHS; ``selection``: the selection, "" for all. ``stacks``:
    "comm;outermost;…;innermost" to its weight, in ``unit``: "us", for samples of a clock "ns", of
    other events "samples" (the sum of their periods). ``kinds``: kinds of frames, by name.
    ``count``: number of samples, waits, requests or calls shown, ``total_ns``: their time, None for
    samples that no clock took; ``stackless``: those without a recorded stack; ``cut_ns``: the part
    of ``total_ns`` with stacks that end before their thread's start (None if unknown).
    ``unfinished``: those not shown because their end was not seen. ``states_ns``: waits by state.
    ``daemons_ns``: the part of ``total_ns`` that threads of daemons waited; ``shared_ns``: time of
    requests that is not in ``total_ns`` because their caller waited for another one meanwhile.
    ``kernel`` and ``user``: what named their functions. ``notes``: other remarks, a line each.
    """

    graph: str
    selection: str
    stacks: dict[str, float]
    unit: str
    kinds: dict[str, str]
    count: int
    total_ns: Ns | None
    stackless: int
    cut_ns: Ns | None
    left_out: LeftOut
    unfinished: int
    states_ns: dict[str, Ns]
    daemons_ns: Ns
    shared_ns: Ns
    kernel: Named
    user: Named
    notes: tuple[str, ...]
    facts: Facts

    JSON_HIDDEN = ("stacks", "kinds", "facts")

    def __repr__(self) -> str:
        what = " ".join(filter(None, (self.graph, self.selection)))
        return f"<Stacks of {self.facts.name}: {what}, {len(self.stacks)} stacks>"

    def _repr_html_(self) -> str:
        heaviest = sorted(self.stacks.items(), key=lambda item: -item[1])
        return table(repr(self), ("stack", self.unit), heaviest[:MOST])
