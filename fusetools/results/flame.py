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
    """How often, and the ns of it (of samples in their unit)."""

    times: int
    total: int


NONE = Amount(0, 0)


@dataclass(frozen=True)
class LeftOut:
    """What a picture does not show: how often, and the ns of it.

    ``idle``: a daemon's threads without a request; ``own``: the workload outside of any request;
    ``others``: what filters left out, and other processes.
    """

    idle: Amount = NONE
    own: Amount = NONE
    others: Amount = NONE


@dataclass(frozen=True)
class Named:
    """What named addresses in stacks.

    ``source``: "recording", the path of what was given instead, or "" where there was nothing;
    ``addresses``: how many different ones there were, ``nameless``: how many of them have no name.
    """

    source: str
    addresses: int
    nameless: int


@dataclass(frozen=True, repr=False)
class Stacks:
    """Stacks and their weights, for flame graphs.

    ``graph``: which one, of GRAPHS; ``asked``: what of it, "" for all.
    ``stacks``: "comm;outermost;…;innermost" to its weight, in ``unit``: "us", or of samples the
    unit of their period ("ns" of a clock). ``kinds``: of frames, by name. ``count``: of samples,
    waits, requests or calls shown, ``total``: their weight in ns (of samples in ``unit``),
    ``stackless``: those without a recorded stack; ``cut``: of ``total`` what is of stacks that end
    before their thread's start (None where not known). ``unfinished``: those that are not shown,
    since their end was not seen. ``states``: ns of waits by their state. ``daemons``: of ``total``
    ns that threads of daemons waited; ``shared``: ns of requests that are not in ``total``, since
    their caller waited for another one at the same time. ``kernel`` and ``user``: what named their
    functions. ``notes``: what else is to be said, a line each.
    """

    graph: str
    asked: str
    stacks: dict[str, float]
    unit: str
    kinds: dict[str, str]
    count: int
    total: int
    stackless: int
    cut: int | None
    left_out: LeftOut
    unfinished: int
    states: dict[str, Ns]
    daemons: Ns
    shared: Ns
    kernel: Named
    user: Named
    notes: tuple[str, ...]
    facts: Facts

    JSON_HIDDEN = ("stacks", "kinds", "facts")

    def __repr__(self) -> str:
        what = " ".join(filter(None, (self.graph, self.asked)))
        return f"<Stacks of {self.facts.name}: {what}, {len(self.stacks)} stacks>"
