"""Layout of text.

On a terminal no line is wider than it, except commands, which users copy, and names. Elsewhere
paragraphs are laid out for 80 columns, and other lines are whole: for scripts that look for a word.
COLUMNS in the environment counts as a terminal of that width.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Sequence

from fusetools.printable import printable

PIPED = 80  # columns of prose if stdout is not a terminal
LEAST = 40  # columns of the narrowest terminal that text is laid out for
OUT, ERR = 1, 2  # descriptors


BAR = 40  # columns
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"  # click.echo removes them if stdout is not a terminal
_STYLE = re.compile("\x1b\\[[0-9;]*m")


class Whole(str):
    """A line that is not wrapped: a command, or a row of a table."""

    __slots__ = ()


def entry(line: str) -> str:
    """Return a line that is whole if stdout is not a terminal, as rows of tables are."""
    return line if limit() else Whole(line)


def limit(descriptor: int = OUT) -> int | None:
    """Return the number of columns of the terminal, None if it is not one."""
    wanted = os.environ.get("COLUMNS", "")
    columns = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 5 else 0
    if not columns:
        try:
            columns = os.get_terminal_size(descriptor).columns
        except OSError:
            return None
    return max(columns, LEAST) if columns else None


def width(descriptor: int = OUT) -> int:
    """Return the number of columns of the terminal, or 80 if it is not one."""
    return limit(descriptor) or PIPED


def prose(
    text: str, first: str = "", rest: str = "", columns: int = 0, broken: bool = False
) -> list[str]:
    """Wrap text to ``columns`` or width(), except for longer words; ``broken``: break those, too.

    ``first``, ``rest``: indents. A number and its unit stay together. Do not wrap commands, which
    users copy."""
    wrapped = textwrap.wrap(
        re.sub(r"(?<=\d) (?=(?:[num]?s|[kMG]?B)\b|%)", "\xa0", text),
        columns or width(),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=broken,
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

    Return one string for each row. On a terminal that is too narrow, a row has further lines with
    the columns that do not fit; a last name alone that does not fit has a line of its own. A row
    that is a str is one line over all columns and does not affect their widths.
    """
    rows = [
        type(row)(indent + printable(row)) if isinstance(row, str) else [*map(printable, row)]
        for row in rows
    ]
    columns = zip(*(row for row in rows if not isinstance(row, str)))
    widths = [max(map(len, column)) for column in columns]
    parts = _parts(widths, align, limit(), len(indent))
    return [
        row
        if isinstance(row, str)
        else Whole("\n".join(_lines_of(row, widths, align, parts, indent)))
        for row in rows
    ]


def _parts(widths: Sequence[int], align: str, room: int | None, indent: int) -> list[slice]:
    """Divide columns among lines of at most ``room`` characters; a name at the end counts only if
    it has a line of its own in each row."""
    parts = [slice(0, 0)]
    used = indent - 2
    for column, wide in enumerate(widths):
        used += 2 + wide
        name = column == len(widths) - 1 and align[column] == "<"
        if room is not None and used > room and column > parts[-1].start and not name:
            parts.append(slice(column, column))
            used = indent + 2 + wide
        parts[-1] = slice(parts[-1].start, column + 1)
    return parts


def _lines_of(
    row: Sequence[str], widths: Sequence[int], align: str, parts: Sequence[slice], indent: str
) -> list[str]:
    """Return the lines of a table's row."""
    room = limit()
    lines: list[str] = []
    for part in parts:
        cells = [f"{c:{a}{w}}" for c, a, w in zip(row[part], align[part], widths[part])]
        before = f"{indent}  " if lines else indent
        line = (before + "  ".join(cells)).rstrip()
        if room is not None and len(line) > room and align[part][-1] == "<" and len(cells) > 1:
            lines += [(before + "  ".join(cells[:-1])).rstrip(), f"{indent}  {row[part][-1]}"]
        elif line.strip() or not lines:
            lines.append(line)
    return lines


def lines(text: Iterable[str], descriptor: int = OUT) -> str:
    """Join lines, each with a line end, and wrap those that are too wide for the terminal, below
    their own indent."""
    columns = limit(descriptor)
    return "".join(f"{part}\n" for line in text for part in _fitted(line, columns))


def _fitted(line: str, columns: int | None) -> list[str]:
    whole = columns is None or isinstance(line, Whole) or len(line) <= columns
    if whole or len(_STYLE.sub("", line)) <= (columns or 0):
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return prose(line[len(indent) :], indent, f"{indent}  ", columns or 0)


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
