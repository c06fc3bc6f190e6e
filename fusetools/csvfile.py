"""CSV as fusetools writes and reads it: no cell controls a terminal or is a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from fusetools.printable import printable


def written(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a CSV file's text: a header line and the rows."""
    return lines([columns, *rows])


def lines(rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([cell(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()


# Spreadsheets evaluate text that begins like this as a formula.
_FORMULA = re.compile(r"'*[=+@-](?![0-9.]+$)")


def cell(text: str) -> str:
    """Escape control characters, and prefix a formula with an apostrophe."""
    text = printable(text)
    return "'" + text if _FORMULA.match(text) else text


def uncell(text: str) -> str:
    """Remove the apostrophe that ``cell`` added. Inverse of ``cell`` for printable text."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text
