"""Profiles for other viewers: Speedscope and the Firefox Profiler."""

from __future__ import annotations

import json
import math

from .folded import Diff, Folded, Graph, check_not_empty, in_order
from .kinds import Kinds
from .tree import tree

_SPEEDSCOPE_UNITS = {
    "ns": "nanoseconds",
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "bytes": "bytes",
}

_MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}

# The Firefox Profiler names its colours, and requires a grey category for the rest.
_FIREFOX_COLOURS = ("orange", "green", "blue", "yellow", "purple", "lightblue", "red", "brown")

# The newest version in which each thread has its own tables; the profiler upgrades from it.
_FIREFOX_VERSION = 57


def _parts(graph: Graph, title: str) -> list[tuple[str, Folded]]:
    """Return a graph's profiles by name: one, or those before and after."""
    check_not_empty(graph)
    if isinstance(graph, Diff):
        return [("before", graph.before), ("after", graph.after)]
    return [(title, graph)]


def speedscope(graph: Graph, *, title: str = "Flame Graph") -> str:
    """JSON for https://www.speedscope.app, by its schema; a Diff as two profiles.

    The samples are in the order of time if the graph has it for all, else by name.
    """
    places: dict[str, int] = {}
    profiles = []
    for name, part in _parts(graph, title):
        rows = [(stack, part.stacks[stack]) for stack in in_order(part.stacks)]
        if part.order and math.isclose(sum(weight for _, weight in part.order), part.total):
            rows = [*part.order]
        profiles.append(
            {
                "type": "sampled",
                "name": name,
                "unit": _SPEEDSCOPE_UNITS.get(part.unit, "none"),
                "startValue": 0,
                "endValue": part.total,
                "samples": [
                    [places.setdefault(frame, len(places)) for frame in stack.split(";")]
                    for stack, _ in rows
                ],
                "weights": [weight for _, weight in rows],
            }
        )
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": "flame",
            "name": title,
            "activeProfileIndex": len(profiles) - 1,
            "shared": {"frames": [{"name": name} for name in places]},
            "profiles": profiles,
        },
        separators=(",", ":"),
    )


def firefox(graph: Graph, *, title: str = "Flame Graph", kinds: Kinds | None = None) -> str:
    """JSON for https://profiler.firefox.com, a processed profile; a Diff as two threads.

    A stack is one sample, the samples follow each other: their order in time is not known. Times
    are weights in ms, other units count as samples. Kinds become categories.
    """
    strings: dict[str, int] = {}
    names = kinds.names if kinds is not None else ()
    categories = [{"name": "Other", "color": "grey", "subcategories": ["Other"]}] + [
        {
            "name": kind,
            "color": _FIREFOX_COLOURS[i % len(_FIREFOX_COLOURS)],
            "subcategories": ["Other"],
        }
        for i, kind in enumerate(names)
    ]
    threads = [
        _thread(name, number, part, kinds, strings)
        for number, (name, part) in enumerate(_parts(graph, title))
    ]
    return json.dumps(
        {
            "meta": {
                "version": 31,
                "preprocessedProfileVersion": _FIREFOX_VERSION,
                "interval": 1,
                "startTime": 0,
                "processType": 0,
                "product": title,
                "stackwalk": 1,
                "symbolicated": True,
                "importedFrom": "flame",
                "categories": categories,
                "markerSchema": [],
                "sourceCodeIsNotOnSearchfox": True,
            },
            "libs": [],
            "shared": {"stringArray": list(strings)},
            "threads": threads,
        },
        separators=(",", ":"),
    )


def _thread(
    name: str, number: int, part: Folded, kinds: Kinds | None, strings: dict[str, int]
) -> dict[str, object]:
    merged = tree(part)
    scale = _MILLISECONDS.get(part.unit)
    samples = [node for node, weight in enumerate(merged.after) if weight]
    weights = [merged.after[node] * (scale or 1) for node in samples]
    times, now = [], 0.0
    for weight in weights:
        times.append(now)
        now += weight
    n = len(merged.frames)
    category = {kind: i + 1 for i, kind in enumerate(kinds.names)} if kinds is not None else {}
    return {
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "name": name,
        "processName": name,
        "isMainThread": True,
        "pid": str(number),
        "tid": number,
        "samples": {
            "stack": samples,
            "time": times,
            "weight": weights,
            "weightType": "samples" if scale is None else "tracing-ms",
            "length": len(samples),
        },
        "markers": {
            "data": [],
            "name": [],
            "startTime": [],
            "endTime": [],
            "phase": [],
            "category": [],
            "length": 0,
        },
        "stackTable": {
            "frame": list(merged.frame),
            "prefix": [None if parent < 0 else parent for parent in merged.parent],
            "length": len(merged.frame),
        },
        "frameTable": {
            "address": [-1] * n,
            "inlineDepth": [0] * n,
            "category": [
                category.get(kinds.of(frame) or "", 0) if kinds else 0 for frame in merged.frames
            ],
            "subcategory": [0] * n,
            "func": list(range(n)),
            "nativeSymbol": [None] * n,
            "innerWindowID": [0] * n,
            "line": [None] * n,
            "column": [None] * n,
            "length": n,
        },
        "funcTable": {
            "name": [strings.setdefault(frame, len(strings)) for frame in merged.frames],
            "isJS": [False] * n,
            "relevantForJS": [False] * n,
            "resource": [-1] * n,
            "fileName": [None] * n,
            "lineNumber": [None] * n,
            "columnNumber": [None] * n,
            "length": n,
        },
        "resourceTable": {"lib": [], "name": [], "host": [], "type": [], "length": 0},
        "nativeSymbols": {
            "libIndex": [],
            "address": [],
            "name": [],
            "functionSize": [],
            "length": 0,
        },
    }
