"""Stacks merged into a tree, as the pictures with an own layout draw them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from fusetools.flame.folded import Graph, in_order


@dataclass(frozen=True)
class Tree:
    """A tree in flat arrays, callers before callees, callees by name.

    A node is its place in these.

    frames: the names. frame: of each node, its place in `frames`. parent: of each node, its
    caller; -1 for none.
    before, after: of each node, the weight of the stacks that end there; `before` is empty where
    not compared.
    """

    frames: list[str]
    frame: array[int]
    parent: array[int]
    before: array[float]
    after: array[float]


def tree(graph: Graph) -> Tree:
    """Merges stacks that begin the same."""
    places: dict[str, int] = {}
    frame, parent = array("i"), array("i")
    before, after = array("d"), array("d")
    last: list[str] = []
    path: list[int] = []
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
        weight = graph.stacks[name]
        if isinstance(weight, tuple):
            before[path[-1]], after[path[-1]] = weight
        else:
            after[path[-1]] = weight
        last = frames
    compared = any(isinstance(weight, tuple) for weight in graph.stacks.values())
    return Tree(list(places), frame, parent, before if compared else array("d"), after)
