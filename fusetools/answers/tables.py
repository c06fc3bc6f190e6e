"""Single requests and calls, as Arrow tables, and their durations."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.flame import prepare
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.patterns import expression
from fusetools.results.table import Table


def requests(source: Source, filters: Filters) -> Table:
    """Return all requests."""
    rows = source.catalogue.named().rows
    native = source.core_filters(filters)
    made = source.query(core.native.requests, rows, native, source.mount_points)
    return Table("requests", source.path.name, made)


def calls(source: Source, patterns: Sequence[str], filters: Filters) -> Table:
    """Return the matched calls of all layers; ``patterns`` as in hist()."""
    names = [name for _, name in source.functions]
    regexes = [expression(pattern) for pattern in patterns]
    selected = source.catalogue.select(regexes, (), filters.callers, names, sent=True)
    made = source.query(core.native.calls, selected.rows, source.core_filters(filters))
    return Table("calls", source.path.name, made)


def waits(
    source: Source,
    patterns: Sequence[str],
    filters: Filters,
    states: Sequence[str],
    everything: bool,
) -> Table:
    """Return waits; the arguments are those of Recording.stacks()."""
    rows, ask = prepare(source, "off-cpu", patterns, (), filters, states, everything, None, None)
    if ask["graph"] != "off-cpu":
        what = f"{source.path.name} holds no switches of tasks"
        raise Error(what, "perf record --off-cpu adds up waits", "fusetools record -- WORKLOAD")
    return Table("waits", source.path.name, source.query(core.native.waits, rows, ask))


def durations(source: Source, daemon: bool) -> dict[str, bytes]:
    """Return durations by operation, as in Recording.durations()."""
    rows = source.catalogue.requests().rows
    return source.query(core.native.durations, rows, source.core_filters(Filters()), daemon)
