"""Flame graphs as SVG, with search and zoom as in flamegraph.pl, drawn by the crate inferno."""

from __future__ import annotations

from . import _inferno
from .folded import (
    MAX_TOTAL,
    Diff,
    Error,
    Graph,
    check_not_empty,
    in_order,
    reverse,
    unambiguous,
)
from .kinds import Kinds

# Frames keep black text, which is readable on all their colours.
_DARK = """@media screen and (prefers-color-scheme: dark) {
svg:root { background:#15171b; }
#background stop { stop-color:#15171b; }
#search { opacity:0.4; }
svg > text { fill:#e8eaed; }
#frames { opacity:0.88; }
#frames > *:hover { stroke:white; }
}
"""
# In narrow windows headings are smaller and start at the left: what is cut is their end.
_NARROW = """@media (max-width: 900px) {
#title, #subtitle { text-anchor:start; transform:translateX(calc(10px - 50vw)); }
#title { font-size:12px; }
#subtitle { font-size:9px; }
}
"""
_DIFFERENCE = "red more, blue less than before"
_SMALLER = {"s": "ms", "ms": "us", "us": "ns"}


def palettes() -> list[str]:
    """Return the palettes of `svg`: hot, java …"""
    return _inferno.palettes()


def svg(
    graph: Graph,
    *,
    title: str = "Flame Graph",
    subtitle: str = "",
    inverted: bool = False,
    reversed: bool = False,
    palette: str = "hot",
    kinds: Kinds | None = None,
    min_width: float = 0.01,
    width: int = 0,
) -> str:
    """Return a self-contained SVG page.

    A Diff has the width of the stacks after; frames that end stacks are red if they grew and blue
    if they shrank.
    inverted: the root at the top (an icicle graph). reversed: stacks merged from their leaves.
    kinds: colour by these, others grey, with those drawn in the subtitle; not in a Diff.
    palette: one of `palettes()`, if there are no kinds. min_width: leave out narrower frames, per
    cent of the total. width: in pixels; 0: as wide as the window.
    Raises Error for a graph without any weight and for an unknown palette.
    """
    check_not_empty(graph)
    if palette not in palettes():
        raise Error(f"no palette {palette}: {', '.join(palettes())}")
    if not 0 <= min_width < 100:
        raise Error(f"the least width is in per cent of the whole, not {min_width:g}")
    if reversed:
        graph = reverse(graph)
    names = in_order(graph.stacks)
    unit, fine = _whole(graph)
    if isinstance(graph, Diff):
        if not any(after for _, after in graph.stacks.values()):
            raise Error("nothing is left after: a difference is as wide as what is after")
        scale = graph.scale * fine
        both = [graph.stacks[name] for name in names]
        weights = [f"{round(before * scale)} {round(after * fine)}" for before, after in both]
    else:
        weights = [str(round(graph.stacks[name] * fine)) for name in names]
    stacks = [unambiguous(name) for name in names]
    colours: list[tuple[str, tuple[int, int, int]]] = []
    if kinds is not None and not isinstance(graph, Diff):
        frames = dict(zip(";".join(stacks).split(";"), ";".join(names).split(";")))
        drawn = {kinds.of(name) for name in frames.values()}
        colour_of = zip(kinds.names, kinds.legend)
        legend = ", ".join(f"{kind} {colour}" for kind, (colour, _) in colour_of if kind in drawn)
        subtitle = " · ".join(filter(None, (subtitle, legend)))
        colours = [(frame, kinds.colour(name)) for frame, name in frames.items()]
        colours.append(("", (222, 224, 229)))
    if isinstance(graph, Diff):
        subtitle = " · ".join(filter(None, (_DIFFERENCE, subtitle)))
    try:
        page = _inferno.svg(
            "\n".join(f"{stack} {weight}" for stack, weight in zip(stacks, weights)),
            title=title,
            subtitle=subtitle or None,
            count_name=unit,
            palette=palette,
            inverted=inverted,
            min_width=min_width,
            width=width,
            colours=colours,
        )
    except ValueError as error:
        raise Error(f"cannot draw: {error}") from None
    return page.replace("</style>", f"{_DARK}{_NARROW}</style>", 1)


def _whole(graph: Graph) -> tuple[str, int]:
    """Return a unit in which the weights are integers, and how many of it make one of the graph's.

    inferno counts in integers, and its own factor makes percentages wrong.
    """
    drawn = graph.after if isinstance(graph, Diff) else graph
    whole = all(weight == int(weight) for weight in drawn.stacks.values())
    if whole or graph.unit == "ns" or drawn.total * 1000 > MAX_TOTAL:
        return graph.unit, 1
    return _SMALLER.get(graph.unit, f"{graph.unit} / 1000"), 1000
