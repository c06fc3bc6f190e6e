"""fusetools graph as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetools.figures import duration, number, share
from fusetools.printable import printable
from fusetools.render.text.footer import footer, nothing
from fusetools.render.text.layout import lines, table
from fusetools.results.graph import Graph, GraphCall, GraphCalls, GraphNode


def render(result: Graph, unit: str = "") -> str:
    rows: list[Sequence[str]] = [("FUNCTION", "CALLS", "TOTAL", "SELF", "SHARE")]
    for root in result.roots:
        # Shares of each root, not of all: a function that waits for work would dwarf the others.
        rows += _nodes(root, 0, root.total_ns, unit)
    output = table(rows, "<>>>>") if len(rows) > 1 else nothing(result.facts, "no calls")
    return lines([*output, "", *footer(result.facts, result.unmatched)])


def _nodes(node: GraphNode, level: int, whole: int, unit: str) -> Iterator[Sequence[str]]:
    times = (duration(node.total_ns, unit), duration(node.self_time_ns, unit))
    yield ("  " * level + node.function, number(node.calls), *times, share(node.total_ns, whole))
    for child in node.children:
        yield from _nodes(child, level + 1, whole, unit)


def render_calls(result: GraphCalls, unit: str = "") -> Iterator[str]:
    """Yield the text of each call tree: start since the root's start, duration, function."""
    any_call = False
    for root in result.calls:
        any_call = True
        rows = list(_call(root, root.start_ns, 0, unit))
        task = f"{printable(root.comm) or 'task'} {root.tid}"
        heading = f"{(root.start_ns - result.first_ns) / 1e9:.9f} s  {task}"
        yield lines([f"{heading}, CPU {root.cpu}", *table(rows, ">><", "  "), ""])
    yield lines(
        [
            *([] if any_call else [*nothing(result.facts, "no calls"), ""]),
            *footer(result.facts, result.unmatched),
        ]
    )


def _call(call: GraphCall, begin: int, level: int, unit: str) -> Iterator[Sequence[str]]:
    took = "unfinished" if call.duration_ns is None else duration(call.duration_ns, unit)
    yield (f"+{duration(call.start_ns - begin, unit)}", took, "  " * level + call.function)
    for child in call.children:
        yield from _call(child, begin, level + 1, unit)
