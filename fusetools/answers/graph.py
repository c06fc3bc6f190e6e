"""Call trees of kernel functions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.requests import column
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.patterns import unknown
from fusetools.results.facts import Facts
from fusetools.results.graph import Graph, GraphCall, GraphCalls, GraphNode


def graph(source: Source, function: str, filters: Filters) -> Graph:
    """Return the call tree of kernel functions, summed over all calls.

    ``function``: a name or shell pattern; calls of matching functions at any depth become the
    roots. Raise Error if no kernel function has a duration, or none has that name.
    """
    answer, facts = _query(source, filters, False)
    return Graph(tuple(_tree(source, answer, function)), answer["unmatched"], facts)


def graph_calls(source: Source, function: str, filters: Filters) -> GraphCalls:
    """Return single calls by start time, each with its callees; ``function`` as in graph()."""
    answer, facts = _query(source, filters, True)
    _tree(source, answer, function)  # raises an error if there is none
    calls = _single_calls(answer, function)
    return GraphCalls(calls, answer["first"], answer["unmatched"], facts)


def _query(source: Source, filters: Filters, calls: bool) -> tuple[core.native.Graph, Facts]:
    needed = source.catalogue.kernel().rows
    if not any(p.role in ("graph_exit", "return") for p in needed):
        raise Error(
            f"{source.path} holds no calls of kernel functions",
            "neither function_graph nor return probes were recorded",
            "fusetools record --backend graph -- WORKLOAD",
        )
    answer = source.query(core.native.graph, needed, source.core_filters(filters), calls)
    if answer["full"]:
        full = "too many ways to call: some are left out"
        answer["warnings"] = [*answer["warnings"], full]
    return answer, source.facts(answer, filters)


def _tree(source: Source, answer: core.native.Graph, function: str) -> list[GraphNode]:
    tree = _nodes(answer, function)
    if function and not tree:
        raise unknown(
            f"no call of a kernel function {function}",
            function,
            set(answer["functions"]),
            f"fusetools count -i {shlex.quote(str(source.path))} --layer kernel",
        )
    return tree


def _nodes(answer: core.native.Graph, function: str) -> list[GraphNode]:
    """Convert the core's nodes; merge the nodes of one function with the same callers."""
    names = answer["functions"]
    wanted = [not function or fnmatchcase(name, function) for name in names]
    places: dict[tuple[int, str], int] = {}
    figures: list[list[int]] = []  # calls, total, self
    below: list[list[int]] = []
    roots: list[int] = []
    place_of: list[int] = []  # index into figures by node; -1: outside the wanted calls
    for parent, code, *added in answer["nodes"]:
        around = place_of[parent] if parent >= 0 else -1
        if around < 0 and not wanted[code]:
            place_of.append(-1)
            continue
        place = places.setdefault((around, names[code]), len(figures))
        if place == len(figures):
            figures.append([0, 0, 0])
            below.append([])
            (below[around] if around >= 0 else roots).append(place)
        figures[place] = [a + b for a, b in zip(figures[place], added)]
        place_of.append(place)
    functions = [name for _, name in places]
    done: dict[int, GraphNode] = {}

    def sort(nodes: Iterable[int]) -> tuple[GraphNode, ...]:
        children = [done[node] for node in nodes]
        children = [node for node in children if node.calls or node.children]
        return tuple(sorted(children, key=lambda node: (-node.total_ns, node.function)))

    # Children come after their parent, so begin with the last node.
    for place in reversed(range(len(figures))):
        calls, total, own = figures[place]
        done[place] = GraphNode(functions[place], calls, total, own, sort(below[place]))
    return list(sort(roots))


_UNFINISHED = (1 << 64) - 1


def _single_calls(answer: core.native.Graph, function: str) -> Iterator[GraphCall]:
    names = answer["functions"]
    wanted = [not function or fnmatchcase(name, function) for name in names]
    raw = answer["calls"]

    columns = (
        *(column(of, "I") for of in (raw["function"], raw["level"], raw["cpu"], raw["comm"])),
        column(raw["tid"], "i"),
        *(column(of, "Q") for of in (raw["start"], raw["duration"])),
    )
    path: list[GraphCall] = []  # open calls, the outermost first
    top = 0  # the outermost call's level
    for code, level, cpu, comm, tid, start, duration in zip(*columns):
        if path and level <= top:
            yield path[0]
            path = []
        if not path and not wanted[code]:
            continue
        if not path:
            top = level
        del path[level - top :]
        took = None if duration == _UNFINISHED else duration
        call = GraphCall(names[code], start, took, tid, answer["comms"][comm], cpu)
        if path:
            path[-1].children.append(call)
        path.append(call)
    if path:
        yield path[0]
