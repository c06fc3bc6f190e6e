"""Flame graphs as SVG, searched and zoomed as those of flamegraph.pl; the crate inferno draws."""

from __future__ import annotations

from collections.abc import Iterable

from flame import _inferno
from flame.folded import Diff, Error, Graph, check_not_empty, in_order, reverse, unambiguous
from flame.kinds import Kinds

# Fractions are drawn in thousandths: inferno's own counts are whole.
_FINE = 1000


def palettes() -> list[str]:
    """The names that `svg` knows as palettes: hot, java …"""
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
    """An SVG page that needs nothing else.

    A Diff is as wide as what is after, each frame that ends stacks red where it grew and blue
    where it shrank.
    inverted: the root at the top (an icicle graph). reversed: stacks merged from their leaves.
    palette: one of `palettes()`, for the frames that have no kind. min_width: frames narrower than
    this are left out, per cent of the whole. width: in pixels; 0 for as wide as the window.
    Raises Error for a graph without any weight and for a palette that is unknown.
    """
    check_not_empty(graph)
    if palette not in palettes():
        raise Error(f"no palette {palette}: {', '.join(palettes())}")
    if not 0 <= min_width < 100:
        raise Error(f"the least width is in per cent of the whole, not {min_width:g}")
    if reversed:
        graph = reverse(graph)
    unit = graph.unit
    factor = 1.0
    names = in_order(graph.stacks)
    if isinstance(graph, Diff):
        if not any(after for _, after in graph.stacks.values()):
            raise Error("nothing is left after: a difference is as wide as what is after")
        fine = _FINE if _fractional(after for _, after in graph.stacks.values()) else 1
        if fine != 1:
            # inferno's factor would make the percentages of a difference wrong.
            unit += f" / {fine}"
        scale = graph.scale * fine
        lines = [
            f"{unambiguous(name)} {round(graph.stacks[name][0] * scale)}"
            f" {round(graph.stacks[name][1] * fine)}"
            for name in names
        ]
    else:
        fine = _FINE if _fractional(graph.stacks.values()) else 1
        factor /= fine
        lines = [f"{unambiguous(name)} {round(graph.stacks[name] * fine)}" for name in names]
    colours = []
    if kinds is not None:
        for frame in {frame for name in names for frame in unambiguous(name).split(";")}:
            colour = kinds.colour(frame)
            if colour is not None:
                colours.append((frame, colour))
    try:
        return _inferno.svg(
            "\n".join(lines),
            title=title,
            subtitle=subtitle or None,
            count_name=unit,
            palette=palette,
            inverted=inverted,
            min_width=min_width,
            width=width,
            factor=factor,
            colours=colours,
        )
    except ValueError as error:
        raise Error(f"cannot draw: {error}") from None


def _fractional(weights: Iterable[float]) -> bool:
    return any(weight != int(weight) for weight in weights)
