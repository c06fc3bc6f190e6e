"""A native core made of given calls: it answers as fusetools._core does, without a file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


class CoreError(Exception):
    pass


@dataclass
class Made:
    """Calls of one function; ``entries`` if more were entered than returned."""

    layer: str
    function: str
    operation: str
    durations: list[int]
    entries: int | None = None

    def series(self) -> dict[str, Any]:
        d = sorted(self.durations)
        entries = len(d) if self.entries is None else self.entries
        buckets: dict[int, int] = {}
        for ns in d:
            bucket = max(ns.bit_length() - 1, 0)
            buckets[bucket] = buckets.get(bucket, 0) + 1
        span = range(min(buckets), max(buckets) + 1) if buckets else ()
        return {
            "layer": self.layer,
            "function": self.function,
            "operation": self.operation,
            "entries": entries,
            "count": len(d),
            "unmatched": entries - len(d),
            "lost": entries - len(d),
            "unanswered": 0,
            "least_ns": None,
            "until_reply": None,
            "after_reply": None,
            "min_ns": d[0] if d else None,
            "max_ns": d[-1] if d else None,
            "mean_ns": sum(d) / len(d) if d else None,
            "total_ns": sum(d),
            "percentiles_ns": {
                p: d[min(int(float(p) / 100 * len(d)), len(d) - 1)]
                for p in ("50", "90", "95", "99", "99.9")
                if d
            },
            "outermost": len(d) if self.layer == "kernel" else 0,
            "self_time_ns": None,
            "address": None,
            "buckets": [(1 << b if b else 0, (2 << b) - 1, buckets.get(b, 0)) for b in span],
        }


# The kernel's own events, which need no probe.
TRACEPOINTS = (
    "fuse:fuse_request_send",
    "fuse:fuse_request_sent",
    "fuse:fuse_request_end",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "sched:sched_switch",
)


@dataclass
class FakeCore:
    """Replace fusetools.core.native."""

    made: list[Made]
    session: Any = None
    events: list[str] = field(default_factory=lambda: [*TRACEPOINTS])
    lost: int = 0
    throttled: int = 0
    warnings: list[str] = field(default_factory=list)
    requests: tuple[int, int, int] = (0, 0, 0)
    span: int = 3_200_000_000
    fail: tuple[str, str] | None = None
    asked: list[tuple[str, Any, Any]] = field(default_factory=list)
    # Operation, caller, signal, (requests, signals, INTERRUPTs read, obeyed).
    interrupts: list[dict[str, object]] = field(default_factory=list)

    CoreError = CoreError

    def describe(self, path: str) -> dict[str, Any]:
        if self.fail:
            raise CoreError(*self.fail)
        session = self.session
        if session is not None and not isinstance(session, str):
            session = json.dumps(session)
        return {
            "session": session,
            "events": self.events,
            "sampled": [],
            "arch": "x86_64",
            "release": "6.18.44",
            "warnings": self.warnings,
        }

    def scan(self, path: str, catalogue: list[Any], filters: dict[str, Any]) -> dict[str, Any]:
        if self.fail:
            raise CoreError(*self.fail)
        self.asked.append((path, catalogue, filters))
        functions = {(p.layer, p.function) for p in catalogue if p.role == "entry"}
        roles = {p.role for p in catalogue}
        begun, ended, matched = self.requests if "begin" in roles else (0, 0, 0)
        return {
            "first": 5_000_000_000,
            "last": 5_000_000_000 + self.span,
            "lost": self.lost,
            "throttled": self.throttled,
            "warnings": self.warnings,
            "events": [("signal:signal_generate", len(self.interrupts))],
            "sampled": [],
            "callers": [],
            "requests": {"begun": begun, "ended": ended, "matched": matched, "unanswered": 0},
            "series": [
                m.series()
                for m in self.made
                if (m.layer, m.function) in functions
                or (m.layer == "request" and "begin" in roles)
                or (m.layer == "syscall" and "sys_enter" in roles)
            ],
        }

    def stages(self, *_: Any) -> dict[str, Any]:
        return {"groups": []}

    def errors(self, path: str, catalogue: list[Any], filters: dict[str, Any]) -> dict[str, Any]:
        answer = self.scan(path, catalogue, filters)
        return {**answer, "interrupts": self.interrupts}

    def graph(
        self, path: str, catalogue: list[Any], filters: dict[str, Any], calls: bool
    ) -> dict[str, Any]:
        raise NotImplementedError


def probes(*functions: tuple[str, str, str], address: int | None = None) -> list[dict[str, Any]]:
    """Return the session's probes for (layer, function, operation)."""
    rows: list[dict[str, Any]] = []
    for i, (layer, function, operation) in enumerate(functions):
        group = f"fuse_{layer}"
        for role, suffix in (("entry", ""), ("return", "__return")):
            row: dict[str, Any] = {
                "event": f"{group}:{function}{suffix}",
                "layer": layer,
                "function": function,
                "operation": operation,
                "role": role,
            }
            if address is not None:
                row["address"] = address + 64 * i
            rows.append(row)
    return rows


def spread(n: int, middle: int) -> list[int]:
    """Return n durations over six octaves around ``middle``, always the same."""
    return [int(middle * 2 ** (i * 0.6180339887 % 1 * 6 - 3)) for i in range(n)]


def cvmfs_like(scale: float = 1.0) -> FakeCore:
    """Return a recording of a workload on a file system like CernVM-FS's, without the kernel
    layer."""
    made = []
    for operation, callback, syscall, n, middle in (
        ("lookup", "cvmfs_lookup", "newfstatat", 1796, 11_000),
        ("getxattr", "cvmfs_getxattr", "getxattr", 3203, 4_000),
        ("readdir", "cvmfs_readdir", "getdents64", 96, 70_000),
        ("open", "cvmfs_open", "openat", 24, 2_000_000),
        ("read", "cvmfs_read", "read", 50, 1_000_000),
        ("release", "cvmfs_release", "", 24, 9_000),
        ("batch_forget", "cvmfs_forget_multi", "", 7, 900_000),
        ("forget", "cvmfs_forget", "", 0, 0),
    ):
        n = round(n * scale)
        made.append(Made("daemon", callback, operation, spread(n, middle)))
        if n and "forget" not in operation:
            request = spread(n, middle + 45_000)
            made.append(Made("request", f"FUSE_{operation.upper()}", operation, request))
        if syscall:
            made.append(Made("syscall", syscall, operation, spread(n, middle + 52_000)))
    made[0].entries = len(made[0].durations) + 1
    sent = sum(len(m.durations) for m in made if m.layer == "request")
    return FakeCore(
        made,
        session={
            "format": 1,
            "seconds": 3.2,
            "probe_cost_ns": 1800,
            "mounts": [{"path": "/mnt", "connection": 45, "daemon_pid": 20}],
            "probes": probes(
                *(("daemon", m.function, m.operation) for m in made if m.layer == "daemon"),
                address=0xD2100,
            ),
            "missing": [
                {
                    "what": "kernel functions",
                    "why": "this kernel has no kprobes",
                    "fix": "record on a kernel with CONFIG_KPROBES",
                }
            ],
        },
        requests=(sent + 1, sent, sent),
    )
