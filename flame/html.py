"""Flame graphs as one HTML page without network access: the files of page/ and the stacks."""

from __future__ import annotations

import base64
import json
import sys
from array import array
from pathlib import Path

from .folded import Diff, Graph, check_not_empty
from .kinds import Kinds
from .tree import tree


def html(
    graph: Graph,
    *,
    title: str = "Flame Graph",
    subtitle: str = "",
    inverted: bool = False,
    reversed: bool = False,
    kinds: Kinds | None = None,
) -> str:
    """Return a page to search, zoom, invert, focus, hide, compare, print and show in time order.

    inverted, reversed: how the page opens, as in `svg`; a Diff opens normalised if it is, which the
    page can change.
    kinds: colour by these; if None, by name.
    Raises Error for a graph without any weight.
    """
    check_not_empty(graph)
    merged = tree(graph)
    names = kinds.names if kinds is not None else ()
    legend = kinds.legend if kinds is not None else []
    places = {name: place for place, name in enumerate(names)}
    order = () if isinstance(graph, Diff) else graph.order
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
        "order": _base64(array("i", [merged.ends[name] for name, _ in order])),
        "weights": _base64(array("d", [weight for _, weight in order])),
    }
    parts = {
        "title": _escape(title),
        "css": _file("page.css"),
        "js": script(),
        "data": _json(data),
    }
    # The template is split once: inserted text is not expanded again.
    head, *rest = _file("page.html").split("{{")
    return head + "".join(
        parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest)
    )


# The page's scripts, in this order: a part's constants may need those of earlier parts.
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
    """Return the parts in a common scope."""
    parts = "\n".join(_file(f"{name}.js") for name in PARTS)
    return f'"use strict";\n(() => {{\n\n{parts}\n}})();\n'


def _file(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(data: object) -> str:
    """JSON that can neither end its script element nor begin a comment in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _base64(numbers: array[int] | array[float]) -> str:
    """Return the numbers' bytes, little-endian, as in browsers' typed arrays."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
