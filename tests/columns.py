"""Columns of a recording's table, as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fusetools.core import native
from fusetools.results.table import Table

_UNKNOWN = {"pid", "tid", "daemon_pid", "daemon_tid"} | {
    f"{part}_ns" for part in ("no_thread", "no_cpu", "asleep", "blocked", "runnable", "elsewhere")
}


class Columns:
    """Columns of a table by start, with numpy's types; ``columns.begin_ns`` is one.

    Unknown texts are "", unknown numbers 0, or -1 in _UNKNOWN."""

    def __init__(self, table: Table | native.Table) -> None:
        read = pa.table(table)
        self._columns = {name: _array(name, read[name]) for name in read.column_names}
        starts = self.begin_ns
        if self.marks:
            known = np.array([self._columns[f"{mark}_ns"] for mark in self.marks], dtype=np.uint64)
            first = (known - np.uint64(1)).min(axis=0) + np.uint64(1)
            starts = np.where(starts > 0, starts, first.astype(np.int64))
        order = np.argsort(starts, kind="stable")
        self._columns = {name: column[order] for name, column in self._columns.items()}

    @property
    def marks(self) -> list[str]:
        names = list(self._columns)
        if "sys_enter_ns" not in names:
            return []
        marks = names[names.index("sys_enter_ns") : names.index("callback_return_ns") + 1]
        return [name[: -len("_ns")] for name in marks]

    def __getattr__(self, name: str) -> Any:
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(name) from None

    def __len__(self) -> int:
        return len(self.begin_ns)

    def of(self, name: str) -> Any:
        """Return a mask for an operation or a function."""
        return self._columns["operation" if self.marks else "function"] == name

    def fated(self, fate: str) -> Any:
        return self.fate == fate


def _array(name: str, column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    unknown: object = -1 if name in _UNKNOWN else 0
    if pa.types.is_string(column.type):
        unknown = ""
    elif pa.types.is_boolean(column.type):
        unknown = False
    return column.fill_null(unknown).to_numpy()
