"""Rules of Chrome's Trace Event Format that an exported trace follows."""

from __future__ import annotations

from typing import Any

_NEEDED = {"X": {"ts", "dur"}, "M": {"args"}}


def check(events: list[dict[str, Any]]) -> None:
    for e in events:
        needed = _NEEDED.get(e["ph"], {"ts", "id", "cat"})
        assert e["ph"] in "XMstfbe" and {"name", "pid", "tid"} | needed <= set(e), e
        assert all(isinstance(e[key], int) for key in ("pid", "tid"))
        assert all(e.get(key, 0) >= 0 for key in ("ts", "dur")), e
    _nested(events)
    _paired(events, "b", "e")
    flows: dict[int, list[tuple[float, str]]] = {}
    for e in events:
        if e["ph"] in "stf":
            flows.setdefault(e["id"], []).append((e["ts"], e["ph"]))
    order = {"s": 0, "t": 1, "f": 2}
    for points in flows.values():
        phases = [phase for _, phase in sorted(points, key=lambda p: (p[0], order[p[1]]))]
        assert phases in (["s", "t", "f"], ["s", "f"]), points


def _nested(events: list[dict[str, Any]]) -> None:
    """Spans of a thread are nested."""
    threads: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for e in events:
        if e["ph"] == "X":
            ts, dur = round(e["ts"] * 1000), round(e["dur"] * 1000)
            threads.setdefault((e["pid"], e["tid"]), []).append((ts, -dur, e["name"]))
    for thread, spans in threads.items():
        around: list[int] = []
        for ts, minus, name in sorted(spans):
            while around and around[-1] <= ts:
                around.pop()
            assert not around or ts - minus <= around[-1], (thread, name, ts)
            around.append(ts - minus)


def _paired(events: list[dict[str, Any]], begin: str, end: str) -> None:
    keys = [
        sorted((e["id"], e["name"], e["cat"]) for e in events if e["ph"] == phase)
        for phase in (begin, end)
    ]
    assert keys[0] == keys[1]
