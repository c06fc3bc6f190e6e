"""The filters that removed all requests from an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fusetools.answers.filters import Filters
from fusetools.figures import duration
from fusetools.results.removed import Others, Removed

NAMED = ("mount", "comm", "pid", "operation")  # filters whose values are names
_MOST = 4  # other values
# Fields without each filter: of Selected, and of Filters.
_OWN: dict[str, dict[str, Any]] = {
    "operation": {"patterns": ()},
    "duration": {"least_ns": 0},
    "path": {"path": None},
}
_OF_FILTERS: dict[str, dict[str, Any]] = {
    "mount": {"mounts": ()},
    "comm": {"comms": ()},
    "pid": {"pids": ()},
    "time": {"start_ns": None, "end_ns": None},
}


@dataclass(frozen=True)
class Selected:
    """All that selects requests: filters, and a command's own operations, duration and path."""

    filters: Filters = field(default_factory=Filters)
    patterns: Sequence[str] = ()
    least_ns: int = 0
    path: str | None = None

    @property
    def wanted(self) -> dict[str, tuple[str, ...]]:
        """The values of each filter that is given."""
        filters = self.filters
        ends = (filters.start_ns, filters.end_ns)
        every = {
            "mount": filters.mounts,
            "comm": filters.comms,
            "pid": tuple(map(str, filters.pids)),
            "time": () if ends == (None, None) else tuple(map(_time, ends)),
            "operation": tuple(self.patterns),
            "duration": (duration(self.least_ns),) if self.least_ns else (),
            "path": () if self.path is None else (self.path,),
        }
        return {name: values for name, values in every.items() if values}

    def without(self, name: str) -> Selected:
        """Return the same without one filter."""
        if name in _OWN:
            return replace(self, **_OWN[name])
        return replace(self, filters=replace(self.filters, **_OF_FILTERS[name]))


def removed(
    count: Callable[[Selected, str], Mapping[str, int]], selected: Selected
) -> tuple[Removed, ...]:
    """Return what each filter removed from an answer without requests.

    ``count``: returns the number of requests by their values of a filter."""

    def of(alone: bool) -> tuple[Removed, ...]:
        rows = []
        for name, values in selected.wanted.items():
            found = count(selected.without(name) if alone else Selected(), name)
            others = sorted(found.items(), key=lambda row: (-row[1], row[0]))
            named = tuple(Others(*row) for row in others[:_MOST] if name in NAMED)
            rows.append(Removed(name, values, sum(found.values()), named, alone))
        return tuple(rows) if any(row.requests for row in rows) else ()

    return of(True) or (of(False) if len(selected.wanted) > 1 else ())


def _time(ns: int | None) -> str:
    return "" if ns is None else duration(ns)
