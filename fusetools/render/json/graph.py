"""fusetools graph as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fusetools.render.json.dump import dump
from fusetools.results.facts import Facts
from fusetools.results.graph import Graph, GraphCall, GraphCalls, GraphNode


def render(result: Graph) -> str:
    roots = [_node(node) for node in result.roots]
    return dump({"graph": roots, "unmatched": result.unmatched, **_without_requests(result.facts)})


def _node(node: GraphNode) -> dict[str, Any]:
    return {
        "function": node.function,
        "calls": node.calls,
        "total": node.total,
        "self": node.self_time,
        "children": [_node(child) for child in node.children],
    }


def render_calls(result: GraphCalls) -> Iterator[str]:
    """One object, in parts: a line for each outermost call."""
    yield '{"calls": ['
    between = "\n "
    for call in result.calls:
        yield between + json.dumps(_call(call))
        between = ",\n "
    rest = json.dumps({"unmatched": result.unmatched, **_without_requests(result.facts)})
    yield "\n], " + rest[1:] + "\n"


def _without_requests(f: Facts) -> dict[str, Any]:
    return {key: value for key, value in f.to_json().items() if key != "requests"}


def _call(call: GraphCall) -> dict[str, Any]:
    return {
        "function": call.function,
        "start": call.start,
        "duration": call.duration,
        "tid": call.tid,
        "comm": call.comm,
        "cpu": call.cpu,
        "children": [_call(child) for child in call.children],
    }
