"""fusetools slow as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusetools.render.json.dump import dump
from fusetools.results.request import Request
from fusetools.results.slow import Slowest


def render(result: Slowest) -> str:
    rows = [request(r) for r in result.requests]
    return dump({"slowest": rows, "guessed": result.guessed, **result.facts.to_json()})


def request(r: Request) -> dict[str, Any]:
    """``start`` and ``marks`` are since the recording's first event."""
    row = {key: value for key, value in vars(r).items() if key != "parts"}
    row["stages"] = [
        {"stage": name, "ns": ns, "parts_ns": parts} for (name, ns), parts in zip(r.stages, r.parts)
    ]
    if r.meanwhile:
        helpers = [
            {**vars(helper), "syscalls": syscalls(helper.syscalls)}
            for helper in r.meanwhile.helpers
        ]
        calls = syscalls(r.meanwhile.syscalls)
        row["meanwhile"] = {**vars(r.meanwhile), "syscalls": calls, "helpers": helpers}
    return row


def syscalls(calls: Sequence[tuple[str, int, int]]) -> list[dict[str, Any]]:
    return [{"syscall": name, "calls": n, "ns": ns} for name, n, ns in calls]
