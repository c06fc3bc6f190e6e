"""Report section: flame graphs."""

from __future__ import annotations

import base64
import re

from fusetools.errors import Error
from fusetools.reasons import Reason
from fusetools.render import picture as picture_render
from fusetools.render.html.markup import Markup, error, join, missing, note, tag, wide
from fusetools.render.text import flame as flame_text
from fusetools.results.flame import Stacks
from fusetools.results.report import Recorded

# The picture omits frames narrower than NARROW per cent. The page omits pictures with more than
# LARGE characters, and names the `fusetools flame` command instead.
NARROW = 0.1


LARGE = 3_000_000


def render(recorded: Recorded) -> Markup:
    return join([_flame(result, str(recorded.path)) for result in recorded.stacks.values()])


def _flame(result: Stacks | Error, path: str) -> Markup:
    if isinstance(result, Error):
        return error(result)
    if not result.stacks:
        return error(Error(*flame_text.nothing(result, False, path)))
    title = flame_text.what(result)
    try:
        picture = picture_render.picture(result, None, "flame.svg", least=NARROW)
        interactive = picture_render.picture(result, None, "flame.html")
    except Error as failed:
        return error(failed)
    assert isinstance(picture, str) and isinstance(interactive, str)
    if len(picture) > LARGE:
        return missing(
            f"{title}: not drawn", "too large for this page", flame_text.command(result, path)
        )
    # Scripts in an img do not run. The interactive page is in a frame without an origin, so that it
    # cannot access the surrounding page.
    source = "data:image/svg+xml;base64," + base64.b64encode(_still(picture).encode()).decode()
    tall = min(max(int(_height(picture)), 420), 900)
    frame = tag(
        "iframe", sandbox="allow-scripts", srcdoc=Markup(interactive), title=title, height=tall
    )
    return tag(
        "figure",
        tag("h4", title),
        tag("p", flame_text.summary(result), class_="dim"),
        wide(tag("img", class_="flame", src=source, alt=title)),
        [note(line) for line in flame_text.details(result)],
        [note(f"note: {_with_fix(reason)}") for reason in result.notes],
        tag("details", tag("summary", "Search and zoom"), frame, class_="screen")
        if len(interactive) <= LARGE
        else missing(
            "To search and zoom: not here",
            "too large for this page",
            flame_text.command(result, path),
        ),
    )


def _with_fix(reason: Reason) -> str:
    return f"{reason.text}; {flame_text.fix(reason)}" if reason.fix else reason.text


def _height(svg: str) -> float:
    height = re.search(r'<svg[^>]* height="(\d{1,6})', svg)
    return float(height[1]) if height else 600.0


def _still(svg: str) -> str:
    """Remove an SVG's script, which would not run, and the script's button."""
    svg = re.sub(r"<script.*?</script>", "", svg, flags=re.DOTALL)
    return re.sub(r'<text id="search".*?</text>', "", svg)
