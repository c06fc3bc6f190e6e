"""HTML and SVG elements as text. No other module makes elements; all text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Union

from fusetools.errors import Error
from fusetools.printable import printable

_VOID = frozenset(("br", "meta", "col", "hr", "img"))


class Markup(str):
    """Text that is already HTML, and is not escaped again."""

    __slots__ = ()


Child = Union[str, "Iterable[Child]"]


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return an element. ``class_`` and ``stroke_width`` become class and stroke-width; attributes
    that are None or False are omitted."""
    pieces = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        pieces.append(f" {key.rstrip('_').replace('_', '-')}")
        if value is not True:
            text = value if isinstance(value, Markup) else printable(_text(value))
            pieces.append(f'="{html.escape(text)}"')
    pieces.append(">")
    if name not in _VOID:
        pieces += [join(*children), f"</{name}>"]
    return Markup("".join(pieces))


def join(*children: Child) -> Markup:
    """Concatenate; escape text, including characters that could control a terminal."""
    return Markup("".join(_each(children)))


def _each(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield html.escape(printable(child), quote=False)
        else:
            yield from _each(child)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def table(head: Sequence[Child], rows: Iterable[Sequence[Child]], align: str) -> Markup:
    """Return a table, which scrolls in a small window; ``align`` has "<" or ">" per column."""

    def cells(name: str, row: Sequence[Child]) -> list[Markup]:
        return [tag(name, cell, class_=kind(side)) for cell, side in zip(row, align)]

    def kind(side: str) -> str | None:
        return "n" if side == ">" else None  # class of numbers: aligned right, never wrapped

    body = tag("tbody", [tag("tr", cells("td", row)) for row in rows])
    return wide(tag("table", tag("thead", tag("tr", cells("th", head))), body))


def wide(content: Markup) -> Markup:
    """Wrap content that may be wider than the window."""
    return tag("div", content, class_="wide", tabindex="0")


def listed(rows: Iterable[tuple[str, Child]]) -> Markup:
    """Return a list of names and their values."""
    whole = [[tag("dt", name), tag("dd", value)] for name, value in rows]
    return tag("dl", whole, class_="facts")


def sentence(text: str) -> str:
    """Return a line of text output as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def note(text: str) -> Markup:
    return tag("p", text, class_="note")


def legend(kinds: Iterable[tuple[str, str]]) -> Markup:
    """Return a legend of (CSS class of a colour, its meaning)."""
    keys = [tag("span", tag("span", class_=f"swatch {kind}"), name) for kind, name in kinds]
    return tag("p", keys, class_="legend")


def missing(what: str, why: str, fix: str) -> Markup:
    """Return a paragraph on missing content, with the commands that fix it."""
    ways = [tag("code", way) for way in fix.splitlines()]
    tries = [[" or " if i else " fix: ", way] for i, way in enumerate(ways)]
    return tag("p", what, f" ({why})." if why else ".", tries, class_="missing")


def error(failed: Error) -> Markup:
    """Return a paragraph on a question that could not be answered."""
    return missing(failed.what, failed.why, failed.fix)
