"""Stacks merged into a tree, for the formats with their own layout."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from .folded import Graph, in_order


@dataclass(frozen=True)
class Tree:
    """A tree in flat arrays, callers before callees, callees by name.

    A node is an index into these.

    frames: the names. frame: each node's index in `frames`. parent: each node's caller; -1: none.
    before, after: for each node, the weight of the stacks that end there; `before` is empty
    without a comparison. ends: the node in which each stack ends.
    """

    frames: list[str]
    frame: array[int]
    parent: array[int]
    before: array[float]
    after: array[float]
    ends: dict[str, int]


def tree(graph: Graph) -> Tree:
    """Merge stacks with a common beginning."""
    places: dict[str, int] = {}
    frame, parent = array("i"), array("i")
    before, after = array("d"), array("d")
    last: list[str] = []
    path: list[int] = []
    ends: dict[str, int] = {}
    for name in in_order(graph.stacks):
        frames = name.split(";")
        same = 0
        for a, b in zip(last, frames):
            if a != b:
                break
            same += 1
        del path[same:]
        for frame_name in frames[same:]:
            parent.append(path[-1] if path else -1)
            path.append(len(frame))
            frame.append(places.setdefault(frame_name, len(places)))
            before.append(0)
            after.append(0)
        ends[name] = path[-1]
        weight = graph.stacks[name]
        if isinstance(weight, tuple):
            before[path[-1]], after[path[-1]] = weight
        else:
            after[path[-1]] = weight
        last = frames
    compared = any(isinstance(weight, tuple) for weight in graph.stacks.values())
    return Tree(list(places), frame, parent, before if compared else array("d"), after, ends)
