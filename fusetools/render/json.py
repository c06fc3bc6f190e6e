"""JSON: the same figures as the text, times in ns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fusetools.model import (
    Counts,
    Difference,
    Differences,
    Errors,
    Facts,
    Graph,
    GraphCall,
    GraphCalls,
    GraphNode,
    Histogram,
    Histograms,
    Queue,
    Request,
    Shown,
    Side,
    Slowest,
)

if TYPE_CHECKING:
    from fusetools.record.merging import Merged
    from fusetools.record.session import Outcome
    from fusetools.results.stuck import Stuck


def recorded(outcome: Outcome) -> str:
    return dump(
        {
            "recording": None if outcome.output is None else str(outcome.output),
            "bytes": outcome.size,
            "seconds": outcome.seconds,
            "requests": outcome.requests,
            "events": outcome.events,
            "lost": outcome.lost,
            "exit_status": outcome.exit_status,
            "warnings": list(outcome.warnings),
            "unavailable": [vars(m) for m in outcome.unavailable],
        }
    )


def merged(result: Merged) -> str:
    return dump({"records": result.records, "warnings": list(result.warnings)})


def histograms(result: Histograms, overhead: bool = False) -> str:
    """``overhead``: with the share of each bin of the daemon's that is the probes'."""
    rows = [histogram(h) for h in result.histograms]
    probes = result.facts.probe_cost
    if overhead and probes is not None:
        for row, h in zip(rows, result.histograms):
            if h.layer == "daemon":
                shares = [[min(probes / max(ns, 1), 1) for ns in (b[1], b[0])] for b in h.buckets]
                row["tracer"] = shares
    return dump({"histograms": rows, "unmatched": result.unmatched, **facts(result.facts)})


def histogram(h: Histogram) -> dict[str, Any]:
    # Of function_graph's functions alone it is known what they did themselves.
    own: dict[str, Any] = {} if h.self_time is None else {"total": h.total, "self": h.self_time}
    if h.unanswered:
        own.update({"unanswered": h.unanswered, "lower_bounds_from": h.least})
    for name, part in (("until_reply", h.until_reply), ("after_reply", h.after_reply)):
        if part:
            own[name] = {
                key: value
                for key, value in histogram(part).items()
                if key in ("count", "min", "max", "mean", "percentiles", "buckets")
            }
    return {
        "operation": h.operation,
        "layer": h.layer,
        "function": h.function,
        "unit": h.unit,
        "count": h.count,
        "unmatched": h.unmatched,
        "min": h.min,
        "max": h.max,
        "mean": h.mean,
        "percentiles": h.percentiles,
        "buckets": [list(bucket) for bucket in h.buckets],
        **own,
    }


def counts(result: Counts) -> str:
    rows = [
        {
            "function": c.function,
            "operation": c.operation,
            "layer": c.layer,
            "count": c.count,
            "address": c.address,
        }
        for c in result.counts
    ]
    return dump({"counts": rows, "unmatched": result.unmatched, **facts(result.facts)})


def differences(result: Differences) -> str:
    return dump(
        {
            "differences": [_difference(d) for d in result.differences],
            "per": result.per or None,
            "a": facts(result.a),
            "b": facts(result.b),
        }
    )


def errors(result: Errors) -> str:
    rows = [
        {
            "operation": o.operation,
            "requests": o.requests,
            "failed": o.failed,
            "errors": dict(o.errors),
            "negative": o.negative,
            "unanswered": dict(o.unanswered),
        }
        for o in result.operations
    ]
    disconnected = dict(result.disconnected)
    return dump({"operations": rows, "disconnected": disconnected, **facts(result.facts)})


def slowest(result: Slowest) -> str:
    rows = [request(r) for r in result.requests]
    return dump({"slowest": rows, "guessed": result.guessed, **facts(result.facts)})


def shown(result: Shown) -> str:
    moments = [vars(moment) for moment in result.moments]
    told = {"request": request(result.request), "moments": moments, "guessed": result.guessed}
    return dump({**told, **facts(result.facts)})


def request(r: Request) -> dict[str, Any]:
    """``start`` and ``marks`` are since the recording's first event."""
    row = {key: value for key, value in vars(r).items() if key != "parts"}
    row["stages"] = [
        {"stage": name, "ns": ns, "parts_ns": parts} for (name, ns), parts in zip(r.stages, r.parts)
    ]
    if r.meanwhile:
        helpers = [
            {**vars(helper), "syscalls": _syscalls(helper.syscalls)}
            for helper in r.meanwhile.helpers
        ]
        calls = _syscalls(r.meanwhile.syscalls)
        row["meanwhile"] = {**vars(r.meanwhile), "syscalls": calls, "helpers": helpers}
    return row


def _syscalls(calls: Sequence[tuple[str, int, int]]) -> list[dict[str, Any]]:
    return [{"syscall": name, "calls": n, "ns": ns} for name, n, ns in calls]


def queue(result: Queue) -> str:
    rows = [
        {
            **{key: value for key, value in vars(m).items() if key != "levels"},
            "whole": vars(m.whole),
            "parts": [vars(part) for part in m.parts],
            "share_short": m.share_short,
            "share_runnable": m.share_runnable,
        }
        for m in result.mounts
    ]
    return dump({"mounts": rows, **facts(result.facts)})


def graph(result: Graph) -> str:
    roots = [_node(node) for node in result.roots]
    return dump({"graph": roots, "unmatched": result.unmatched, **_without_requests(result.facts)})


def _node(node: GraphNode) -> dict[str, Any]:
    return {
        "function": node.function,
        "calls": node.calls,
        "total": node.total,
        "self": node.self_time,
        "children": [_node(child) for child in node.children],
    }


def graph_calls(result: GraphCalls) -> Iterator[str]:
    """One object, in parts: a line for each outermost call."""
    yield '{"calls": ['
    between = "\n "
    for call in result.calls:
        yield between + json.dumps(_call(call))
        between = ",\n "
    rest = json.dumps({"unmatched": result.unmatched, **_without_requests(result.facts)})
    yield "\n], " + rest[1:] + "\n"


def _without_requests(f: Facts) -> dict[str, Any]:
    return {key: value for key, value in facts(f).items() if key != "requests"}


def _call(call: GraphCall) -> dict[str, Any]:
    return {
        "function": call.function,
        "start": call.start,
        "duration": call.duration,
        "tid": call.tid,
        "comm": call.comm,
        "cpu": call.cpu,
        "children": [_call(child) for child in call.children],
    }


def facts(f: Facts) -> dict[str, Any]:
    """Of the whole recording: ``lost`` is a number of events."""
    return {
        "recording": f.name,
        "seconds": f.seconds,
        "requests": vars(f.requests),
        "lost": f.losses.lost,
        "throttled": f.losses.throttled,
        "warnings": list(f.losses.warnings),
        "unavailable": [vars(m) for m in f.missing],
        "probe_cost_ns": f.probe_cost,
        "cgroups": [vars(t) for t in f.throttled],
    }


def _difference(d: Difference) -> dict[str, Any]:
    return {
        "function": d.function,
        "operation": d.operation,
        "layer": d.layer,
        "a": _side(d.a),
        "b": _side(d.b),
        "change": d.change,
        "percent": d.percent,
        "p50_change": d.slower("50"),
        "p50_percent": d.slower_percent("50"),
    }


def _side(side: Side) -> dict[str, Any]:
    return {"count": side.count, "percentiles": side.percentiles}


def stuck(result: Stuck, compact: bool = False) -> str:
    """``compact``: in one line."""
    value = {"stuck": result.stuck, **asdict(result)}
    return json.dumps(value, allow_nan=False) + "\n" if compact else dump(value)


def dump(value: Any) -> str:
    # ASCII only, so that no name can steer a terminal.
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
