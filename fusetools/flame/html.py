"""Flame graphs as one HTML page without network: the files of page/ and the stacks."""

from __future__ import annotations

import base64
import json
import sys
from array import array
from pathlib import Path

from fusetools.flame.folded import Diff, Graph, check_not_empty
from fusetools.flame.kinds import Kinds
from fusetools.flame.tree import tree


def html(
    graph: Graph,
    *,
    title: str = "Flame Graph",
    subtitle: str = "",
    inverted: bool = False,
    reversed: bool = False,
    kinds: Kinds | None = None,
) -> str:
    """A page to search, zoom, invert, focus, hide, compare and print.

    inverted, reversed: how the page opens, as in `svg`; a Diff opens normalised where it says so,
    and can be switched.
    kinds: coloured by these; by name where there are none.
    Raises Error for a graph without any weight.
    """
    check_not_empty(graph)
    merged = tree(graph)
    names = kinds.names if kinds is not None else ()
    legend = kinds.legend if kinds is not None else []
    places = {name: place for place, name in enumerate(names)}
    data = {
        "title": title,
        "subtitle": subtitle,
        "unit": graph.unit,
        "inverted": inverted,
        "reversed": reversed,
        "normalise": isinstance(graph, Diff) and graph.normalise,
        "kinds": [{"name": name, "colour": colour} for name, (_, colour) in zip(names, legend)],
        "frames": merged.frames,
        "kind": [places.get(kinds.of(frame) or "", -1) for frame in merged.frames] if kinds else [],
        "frame": _base64(merged.frame),
        "parent": _base64(merged.parent),
        "before": _base64(merged.before),
        "after": _base64(merged.after),
    }
    parts = {
        "title": _escape(title),
        "css": _file("page.css"),
        "js": script(),
        "data": _json(data),
    }
    # Split at the places once: what is put in is never looked at again.
    head, *rest = _file("page.html").split("{{")
    return head + "".join(
        parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest)
    )


# What the page runs, in this order: a part's constants may need those of parts before it.
PARTS = (
    "stacks",
    "state",
    "panes",
    "search",
    "colours",
    "drawing",
    "around",
    "actions",
    "paper",
    "begin",
)


def script() -> str:
    """The parts in one scope of their own."""
    parts = "\n".join(_file(f"{name}.js") for name in PARTS)
    return f'"use strict";\n(() => {{\n\n{parts}\n}})();\n'


def _file(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(data: object) -> str:
    """JSON that cannot end the script element that it stands in, nor begin a comment there."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _base64(numbers: array[int] | array[float]) -> str:
    """The numbers' bytes, little-endian, as the typed arrays of browsers are."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
