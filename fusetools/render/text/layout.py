"""Layout of text, 80 columns wide unless a name is longer."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Sequence

from fusetools.printable import printable

PIPED = 80  # columns if stdout is not a terminal


BAR = 40  # columns
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"  # click.echo removes them if stdout is not a terminal


def width() -> int:
    """Return the number of columns of the terminal, or 80 if stdout is not a terminal."""
    try:
        return max(os.get_terminal_size(1).columns, 40)
    except OSError:
        return PIPED


def prose(text: str, first: str = "", rest: str = "", columns: int = 0) -> list[str]:
    """Wrap text to width(), except for longer words, or strictly to ``columns``.

    ``first``, ``rest``: indents. A number and its unit stay together. Do not wrap commands, which
    users copy."""
    wrapped = textwrap.wrap(
        re.sub(r"(?<=\d) (?=(?:[num]?s|[kMG]?B)\b|%)", "\xa0", text),
        columns or width(),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=bool(columns),
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in wrapped]


def bar(n: int, most: int, columns: int = BAR) -> str:
    """Return a bar in eighths of a column; any n > 0 is visible."""
    eighths = max(round(8 * columns * n / most), 1) if n else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def table(rows: Iterable[Sequence[str] | str], align: str, indent: str = "") -> list[str]:
    """Align columns, two spaces apart; ``align`` has "<" or ">" for each column.

    A row that is a str is one line over all columns and does not affect their widths.
    """
    rows = [printable(row) if isinstance(row, str) else [*map(printable, row)] for row in rows]
    columns = zip(*(row for row in rows if not isinstance(row, str)))
    widths = [max(map(len, column)) for column in columns]
    return [
        indent + row
        if isinstance(row, str)
        else (indent + "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, align, widths))).rstrip()
        for row in rows
    ]


def lines(text: Iterable[str]) -> str:
    """Join lines, each with a line end."""
    return "".join(f"{line}\n" for line in text)


def cut(name: str, room: int, keep_end: bool) -> str:
    """Shorten a name to ``room`` characters, at its end or at its begin."""
    if len(name) <= room:
        return name
    return "…" + name[1 - room :] if keep_end else name[: room - 1] + "…"


_LEVELS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Iterable[float], most: float) -> str:
    """Return a character for each value; any value but 0 is visible."""
    levels = len(_LEVELS) - 1
    heights = (max(min(round(levels * v / most), levels), 1) if v > 0 < most else 0 for v in values)
    return "".join(_LEVELS[height] for height in heights)


def wrapped(parts: Iterable[str], indent: str) -> list[str]:
    """Join parts with commas, and wrap lines at commas only, unless a part is too long."""
    room = width() - len(indent) - 3  # includes a comma
    pieces = ", ".join(part for part in parts if part).split(", ")
    whole = ", ".join(p.replace(" ", "\xa0") if len(p) <= room else p for p in pieces)
    return [line.replace("\xa0", " ") for line in prose(whole, indent, indent + "  ")]
