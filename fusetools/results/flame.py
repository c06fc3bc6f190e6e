"""Stacks for flame graphs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from fusetools import core
from fusetools.reasons import Reason
from fusetools.results.facts import Facts
from fusetools.results.rows import MOST, table
from fusetools.results.table import Table
from fusetools.results.units import Ns

GRAPHS = ("on-cpu", "off-cpu", "off-wake", "requests", "graph")


STATES = ("blocked", "runnable", "preempted", "blocked_or_runnable")


# Kinds of frames, in the order of a flame graph's legend.
KINDS = ("system call", "VFS", "FUSE", "scheduler", "kernel", "daemon", "library", "program")


# Functions by which the kernel records: of perf, ftrace, kprobes and uprobes.
TRACER = re.compile(
    r"(__)?(arch_)?(perf|ftrace|kprobe|kretprobe|uprobe|uretprobe|fprobe|rethook|ring_buffer)_"
    r"|handle_swbp|handler_chain|function_graph_|trace_(event|buffer|call)_|get_perf_callchain"
)
IN_KERNEL = ("FUSE", "VFS", "kernel", "scheduler", "system call")  # of KINDS


class Amount(NamedTuple):
    """Number and total time; the time is None for samples of an event other than a clock."""

    times: int
    total_ns: Ns | None


NONE = Amount(0, 0)


@dataclass(frozen=True)
class LeftOut:
    """Time that a flame graph does not show.

    ``idle``: daemons' threads without a request; ``own``: the workload outside of system calls on
    mounts, as far as known;
    ``others``: time excluded by filters, and other processes.
    """

    idle: Amount = NONE
    own: Amount = NONE
    others: Amount = NONE


@dataclass(frozen=True)
class Named:
    """Symbols of addresses in stacks.

    ``source``: "recording", a given path, or "" for none; ``addresses``: number of different
    addresses; ``nameless``: number of those without a name.
    """

    source: str
    addresses: int
    nameless: int


@dataclass(frozen=True, repr=False)
class Stacks:
    """Stacks and their weights, for flame graphs.

    ``graph``: one of GRAPHS. ``selection``: the filters as text, "" for none. ``stacks``: weights
    by "comm;outermost;…;innermost", in ``unit``: "us", "ns" for samples of a clock, or "samples"
    for sums of other events' periods. ``kinds``: kinds of frames by name. ``count``: number of
    samples, waits, requests or calls shown; ``total_ns``: their time, None for samples of an event
    other than a clock. ``stackless``: number without a recorded stack. ``cut_ns``: the part of
    ``total_ns`` whose stacks end before their thread's start, None if unknown. ``unfinished``:
    number not shown as their end was not seen. ``states_ns``: time of waits by state.
    ``daemons_ns``: the part of ``total_ns`` in waits of daemons' threads. ``shared_ns``: time of
    requests that ``total_ns`` omits, as their caller waited for another request at the same time.
    ``outside``: waits in system calls on mounts, but in none of their requests, and their blocked
    time, which is that of results/stages.py, MountCalls.outside_ns; in a graph of requests, these
    calls and their whole time outside of requests. ``order``: the stacks in time, thread after
    thread, each with its weight; of many, the earliest.
    ``kernel`` and ``user``: symbols. ``notes``: other remarks, one line each.
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
    notes: tuple[Reason, ...]
    facts: Facts
    outside: Amount = NONE
    order: tuple[tuple[str, float], ...] = ()

    JSON_HIDDEN = ("stacks", "kinds", "facts", "order")

    def _table(self) -> Table:
        """Return an Arrow table of ``stack`` and ``time_ns``, or else ``samples``."""
        weight, factor = {"us": ("time_ns", 1000), "ns": ("time_ns", 1)}.get(
            self.unit, ("samples", 1)
        )
        rows = [(stack, round(value * factor)) for stack, value in self.stacks.items()]
        return Table("stacks", self.facts.name, core.native.stacks(weight, rows))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._table().__arrow_c_schema__()

    def __repr__(self) -> str:
        what = " ".join(filter(None, (self.graph, self.selection)))
        return f"<Stacks of {self.facts.name}: {what}, {len(self.stacks)} stacks>"

    def untraced(self) -> dict[str, float]:
        """Return the stacks without those in functions of the tracer itself."""

        def is_tracer(name: str) -> bool:
            return self.kinds.get(name) in IN_KERNEL and bool(TRACER.match(name))

        return {
            stack: weight
            for stack, weight in self.stacks.items()
            if not any(map(is_tracer, stack.split(";")))
        }

    def _repr_html_(self) -> str:
        heaviest = sorted(self.stacks.items(), key=lambda item: -item[1])
        return table(repr(self), ("stack", self.unit), heaviest[:MOST])
