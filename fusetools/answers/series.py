"""Calls function by function, as `hist` and `count` need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.source import Source
from fusetools.core import names_operation
from fusetools.names import CALIBRATION
from fusetools.patterns import expression, matches
from fusetools.results.facts import Facts
from fusetools.results.hist import Bucket, Histogram

# Probe sets that have every callback of their daemons. Compilers inline those of others.
_WHOLE = ("cvmfs", "libfuse", "libfuse_highlevel", "gofuse")


class Series(NamedTuple):
    """The calls of a function, the requests of an operation, or the system calls that made these.

    ``entries``: number of calls seen, or of requests begun; ``lost``: ``unmatched`` with each call
    of a kernel function once; ``outermost``: number of matched calls of a kernel function outside
    any other call; ``address``: the function's, from function_graph."""

    histogram: Histogram
    entries: int = 0
    lost: int = 0
    outermost: int = 0
    address: int | None = None


def series(
    source: Source,
    catalogue: core.native.Catalogue,
    patterns: Sequence[str],
    layers: Sequence[str],
    filters: Filters,
    by_operation: bool = False,
    corrected: bool = False,
) -> tuple[list[Series], Facts, dict[str, int]]:
    """Return the series that patterns and layers select, the facts, and all events' counts.

    ``corrected``: subtract the overhead of recording from durations. Raise Error if nothing
    matches, or the overhead was not measured.
    """
    if corrected:
        source.corrected()  # raises its error before the pass over the recording
    names = [name for _, name in source.functions]
    # Operations without a callback have the time from a daemon's read to its reply.
    daemon = [p for p in source.probes if p.layer == "daemon"]
    called = any(p.role == "entry" and p.operation for p in daemon)
    inlined = any(mount.fs not in (None, *_WHOLE) for mount in source.session.mounts)
    windows = (inlined or not called) and not any(p.role == "reply" for p in daemon)
    windows = windows and (not layers or "daemon" in layers)
    needed = catalogue.select(
        [expression(pattern) for pattern in patterns],
        layers,
        filters.callers,
        names,
        by_operation=by_operation,
        windows=windows,
        parts=True,
    )
    native = source.core_filters(filters, functions=False, corrected=corrected)
    wanted = probes = needed.rows
    if corrected:
        # A request's overhead is computed from all events of its stages.
        probes = source.catalogue.requests().plus(needed).rows
    if windows:
        native["windows"] = True
    if any(p.layer == "kernel" for p in probes):
        operation_of = core.native.operation_of
        native["functions"] = [(at, name, operation_of(name)) for at, name in source.functions]
        native["by_operation"] = by_operation
    answer = source.query(core.native.scan, probes, native)
    excluded = {(p.layer, p.function) for p in source.probes}
    excluded -= {(p.layer, p.function) for p in catalogue.rows}
    every = [
        series_of(s)
        for s in answer["series"]
        if s["function"] != CALIBRATION and (s["layer"], s["function"]) not in excluded
    ]
    # A probed function without calls is a result too.
    seen = {(s.histogram.layer, s.histogram.function) for s in every}
    for p in wanted:
        if p.role in ("entry", "reply") and (p.layer, p.function) not in seen:
            seen.add((p.layer, p.function))
            every.append(_empty_series(p))
    rows = [
        s
        for s in every
        if (not layers or s.histogram.layer in layers)
        and (not patterns or _selected(s.histogram, patterns))
    ]
    if patterns and not rows:
        source.no_match(patterns, (s.histogram.operation for s in every))
    facts = source.facts(answer, filters, corrected)
    if all(map(names_operation, patterns)) and not any(
        s.histogram.count or s.entries for s in rows
    ):
        facts = source.with_removed(facts, filters, patterns)
    # The window from read to reply needs system calls.
    daemons = [s.histogram for s in rows if s.histogram.layer == "daemon"]
    untimed = by_operation and any(h.unmatched and not h.count for h in daemons)
    lacking = [*layers, *(["syscall"] if windows or untimed else [])]
    facts = source.with_missing_detail(facts, lacking) if lacking else facts
    return rows, facts, dict(answer["events"])


def _selected(series: Histogram, patterns: Sequence[str]) -> bool:
    """Return whether patterns select a series.

    "read" is an operation, and a system call that may request other operations. A pattern that
    matches an operation does not select system calls by their name."""
    operation, function = series.operation, series.function
    if series.layer == "syscall":
        named = any(names_operation(p) for p in patterns)
        function = "" if named else function
    return matches(patterns, operation, function)


def unmatched(rows: Iterable[Series]) -> int:
    """Count calls without their return and returns without their call.

    Each series of a kernel function counts all of the function, whatever the operation."""
    lost: dict[tuple[str, str, str], int] = {}
    for s in rows:
        h = s.histogram
        key = (h.layer, h.function, "" if h.layer == "kernel" else h.operation)
        lost[key] = max(lost.get(key, 0), s.lost)
    return sum(lost.values())


def histogram(series: core.native.Fields) -> Histogram:
    """Convert a series without its other fields to a histogram; a callback's has its two parts."""
    parts: dict[str, Histogram | None] = {}
    for name in ("until_reply", "after_reply"):
        rest = {"self_time_ns": None, "unmatched": 0, "until_reply": None, "after_reply": None}
        part = series[name]
        parts[name] = histogram({**series, **rest, **part}) if part else None
    buckets = tuple(Bucket(*bucket) for bucket in series["buckets"])
    return Histogram(**{**series, **parts, "buckets": buckets})


def series_of(fields: core.native.Fields) -> Series:
    own = {name: fields.pop(name) for name in ("entries", "lost", "outermost", "address")}
    return Series(histogram(fields), **own)


def _empty_series(probe: core.native.Probe) -> Series:
    ends: tuple[None, None, None] = (None, None, None)
    names = probe.operation, probe.layer, probe.function
    return Series(Histogram(*names, 0, 0, *ends, {}, (), total_ns=0))
