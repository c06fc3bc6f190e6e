"""Flame graphs: folded stacks in; SVG, HTML, Speedscope, Firefox Profiler, pprof and folded text
out.

    graph = flame.Folded({"main;read": 3, "main;write": 5}, unit="us")
    Path("out.svg").write_text(flame.svg(graph, title="…"))
    Path("diff.html").write_text(flame.html(flame.diff(before, after)))

On the command line: `python -m fusetools.flame in.folded -o out.html`.
"""

from __future__ import annotations

from .folded import (
    Diff,
    Error,
    Folded,
    Graph,
    diff,
    folded,
    parse,
    read,
    reverse,
    stack,
)
from .formats import FORMATS, SUFFIXES, drawn
from .html import html
from .kinds import ANNOTATIONS, Kinds
from .pprof import pprof
from .profiles import firefox, speedscope
from .svg import palettes, svg

__all__ = [
    "ANNOTATIONS",
    "FORMATS",
    "SUFFIXES",
    "Diff",
    "Error",
    "Folded",
    "Graph",
    "Kinds",
    "diff",
    "drawn",
    "firefox",
    "folded",
    "html",
    "palettes",
    "parse",
    "pprof",
    "read",
    "reverse",
    "speedscope",
    "stack",
    "svg",
]
