"""CSV as fusetools writes and reads it: no cell steers a terminal or is a spreadsheet's formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from fusetools.printable import printable


def written(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    return lines([columns, *rows])


def lines(rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([cell(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()


# Spreadsheets take text that begins like this for a formula, and run it.
_FORMULA = re.compile(r"'*[=+@-](?![0-9.]+$)")


def cell(text: str) -> str:
    text = printable(text)
    return "'" + text if _FORMULA.match(text) else text


def uncell(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text
