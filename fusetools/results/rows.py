"""How results show themselves in Python: a line, and in a notebook a table."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 50  # rows of a table


class Rows:
    """Of a result whose rows are the field ROWS."""

    ROWS = ""

    def __repr__(self) -> str:
        facts = getattr(self, "facts", None)
        of = f" of {facts.name}" if facts is not None else ""
        return f"<{type(self).__name__}{of}: {len(getattr(self, self.ROWS))} {self.ROWS}>"

    def _repr_html_(self) -> str:
        from html import escape

        from fusetools.results.encode import fields

        rows = [fields(row) for row in getattr(self, self.ROWS)[:MOST]]
        plain = [key for key in rows[0] if _is_plain(rows[0][key])] if rows else []

        def line(tag: str, cells: Iterable[object]) -> str:
            texts = ("" if cell is None else escape(str(cell)) for cell in cells)
            return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

        body = "".join(line("td", [row[key] for key in plain]) for row in rows)
        return f"<p>{escape(repr(self))}</p><table>{line('th', plain)}{body}</table>"


def _is_plain(value: object) -> bool:
    return not isinstance(value, (list, dict))
