"""Flame graphs by fusetools.flame, in the format that a file name's suffix selects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fusetools.flame as flame
from fusetools.errors import Error
from fusetools.render.text.flame import summary, title
from fusetools.results.flame import KINDS, Stacks


def picture(
    shown: Stacks,
    earlier: Stacks | None,
    path: str,
    normalise: bool = False,
    inverted: bool = False,
    reversed: bool = False,
    least: float = 0.01,
    before: str = "",
) -> str | bytes:
    """Return the content of a file in its suffix's format. Error: unknown suffix, or no stacks.

    ``least``: minimum width of a frame in an SVG, in per cent of the total; ``before``: path of the
    earlier recording.
    """
    file = ".folded" if path == "-" else path
    if not file.endswith(flame.SUFFIXES):
        why = f"its name must end in {flame.FORMATS}"
        drawn = str(Path(path).with_suffix(".html"))
        raise Error(f"cannot draw {path}", why, "-o flame.html", instead=(path, drawn))
    # The tracer's own functions differ by what was recorded, not by what ran.
    after = flame.Folded(shown.untraced() if earlier else shown.stacks, shown.unit)
    # A caller may have left stacks out.
    order = [] if earlier else [row for row in shown.order if row[0] in shown.stacks]
    graph: flame.Graph = replace(after, order=order)
    kinds = flame.Kinds(shown.kinds.get, KINDS)
    name, subtitle = title(shown), summary(shown)
    try:
        if earlier is not None:
            first = flame.Folded(earlier.untraced(), earlier.unit)
            graph = flame.diff(first, after, normalise=normalise)
            kinds = flame.Kinds({**earlier.kinds, **shown.kinds}.get, KINDS)
            subtitle += f", before {summary(earlier)} ({before or earlier.facts.name})"
        return flame.drawn(
            graph,
            file,
            title=name,
            subtitle=subtitle,
            inverted=inverted,
            reversed=reversed,
            kinds=kinds,
            min_width=least,
        )
    except flame.Error as error:
        raise Error(f"cannot draw {path}", str(error)) from error
