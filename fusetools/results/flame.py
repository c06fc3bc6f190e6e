"""Stacks for flame graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.results.facts import Facts
from fusetools.results.units import Ns

GRAPHS = ("on-cpu", "off-cpu", "off-wake", "requests", "graph")


STATES = ("blocked", "runnable", "preempted", "blocked_or_runnable")


# Kinds of frames, in the order of a picture's legend.
KINDS = ("system call", "VFS", "FUSE", "scheduler", "kernel", "daemon", "library", "program")


class Amount(NamedTuple):
    """A number and its ns (for samples, in their unit)."""

    times: int
    total: int


NONE = Amount(0, 0)


@dataclass(frozen=True)
class LeftOut:
    """What a picture does not show: number and ns.

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
    "comm;outermost;…;innermost" to its weight, in ``unit``: "us", or for samples the unit of their
    period ("ns" for a clock). ``kinds``: kinds of frames, by name. ``count``: number of samples,
    waits, requests or calls shown, ``total``: their weight in ns (for samples in ``unit``),
    ``stackless``: those without a recorded stack; ``cut``: the part of ``total`` with stacks that
    end before their thread's start (None if unknown). ``unfinished``: those not shown because their
    end was not seen. ``states_ns``: ns of waits by state. ``daemons``: ns of ``total`` that threads
    of daemons waited; ``shared_ns``: ns of requests that are not in ``total`` because their caller
    waited for another one at the same time. ``kernel`` and ``user``: what named their functions.
    ``notes``: other remarks, a line each.
    """

    graph: str
    selection: str
    stacks: dict[str, float]
    unit: str
    kinds: dict[str, str]
    count: int
    total: int
    stackless: int
    cut: int | None
    left_out: LeftOut
    unfinished: int
    states_ns: dict[str, Ns]
    daemons: Ns
    shared_ns: Ns
    kernel: Named
    user: Named
    notes: tuple[str, ...]
    facts: Facts

    JSON_HIDDEN = ("stacks", "kinds", "facts")

    def __repr__(self) -> str:
        what = " ".join(filter(None, (self.graph, self.selection)))
        return f"<Stacks of {self.facts.name}: {what}, {len(self.stacks)} stacks>"
