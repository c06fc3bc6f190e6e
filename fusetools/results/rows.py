"""Display of results in Python: as a line, in a notebook as a table."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 50  # maximum number of rows of a table


class Rows:
    """Base class of results whose rows are in the field named ROWS."""

    ROWS = ""

    def __repr__(self) -> str:
        facts = getattr(self, "facts", None)
        of = f" of {facts.name}" if facts is not None else ""
        return f"<{type(self).__name__}{of}: {len(getattr(self, self.ROWS))} {self.ROWS}>"

    def _repr_html_(self) -> str:
        from fusetools.results.encode import fields

        rows = [fields(row) for row in getattr(self, self.ROWS)[:MOST]]
        shown = [key for key in rows[0] if _fit(row[key] for row in rows)] if rows else []
        return table(repr(self), shown, ([row[key] for key in shown] for row in rows))


def table(above: str, names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return an HTML table below a line of text."""
    from html import escape

    def line(tag: str, cells: Iterable[object]) -> str:
        texts = ("" if cell is None else escape(str(cell)) for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<p>{escape(above)}</p><table>{line('th', names)}{body}</table>"


def _fit(values: Iterable[object]) -> bool:
    """Return whether a table shows a column: it has a known value, and no nested ones."""
    known = [value for value in values if value is not None]
    return bool(known) and not any(isinstance(value, (list, dict)) for value in known)
