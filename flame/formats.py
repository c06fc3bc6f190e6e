"""A flame graph in the format of a file name's suffix."""

from __future__ import annotations

from .folded import Error, Graph, check_not_empty, folded, reverse
from .html import html
from .kinds import Kinds
from .pprof import pprof
from .profiles import firefox, speedscope
from .svg import svg

_FOLDED = (".folded", ".txt", ".collapsed")
_PPROF = (".pb.gz", ".pprof")
SUFFIXES = (".svg", ".html", ".htm", ".json", *_PPROF, *_FOLDED)
FORMATS = ".html, .svg, .folded, .speedscope.json, .firefox.json or .pb.gz (pprof)"


def drawn(
    graph: Graph,
    name: str,
    *,
    title: str = "Flame Graph",
    subtitle: str = "",
    inverted: bool = False,
    reversed: bool = False,
    palette: str = "hot",
    kinds: Kinds | None = None,
    min_width: float = 0.01,
    width: int = 0,
) -> str | bytes:
    """Return the content of the file of that name; bytes if it is not text.

    Options that a format does not support are ignored: only an SVG has a palette and widths, only
    pages are inverted. Raises Error for a name with an unknown suffix, and as `svg` does.
    """
    if name.endswith(".svg"):
        return svg(
            graph,
            title=title,
            subtitle=subtitle,
            inverted=inverted,
            reversed=reversed,
            palette=palette,
            kinds=kinds,
            min_width=min_width,
            width=width,
        )
    if name.endswith((".html", ".htm")):
        return html(
            graph,
            title=title,
            subtitle=subtitle,
            inverted=inverted,
            reversed=reversed,
            kinds=kinds,
        )
    if reversed:
        graph = reverse(graph)
    if name.endswith(".firefox.json"):
        return firefox(graph, title=title, kinds=kinds)
    if name.endswith(".json"):
        return speedscope(graph, title=title)
    if name.endswith(_PPROF):
        return pprof(graph, title=title)
    if name.endswith(_FOLDED):
        check_not_empty(graph)
        return folded(graph)
    raise Error(f"{name}: no such format; {FORMATS}")
