"""Requests' time by stage, from the native core's sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions, selected
from fusetools.answers.source import Source
from fusetools.answers.why import disk_waits
from fusetools.reasons import Code, Reason
from fusetools.results.facts import Facts
from fusetools.results.stages import CallsWithoutRequest, MountCalls, OperationStages, Stage, Stages

_OF_REQUESTS = ("daemon-thread", "size")  # keys that a system call does not have


def stages(
    source: Source,
    patterns: Sequence[str],
    by: str,
    filters: Filters,
    corrected: bool = False,
) -> Stages:
    """Return times by operation and stage; the arguments as in Recording.stages().

    Error: the overhead of recording was not measured, or a pattern matches no operation."""
    expressions(patterns, source.path)  # raises its error before the pass over the recording
    if corrected:
        source.corrected()  # raises its error before the pass over the recording
    probes = source.with_stacks(source.catalogue.requests())
    native = source.core_filters(filters, corrected=corrected)
    answer = source.query(core.native.stages, probes, native, by, source.pair_cost or 0)
    mounts = source.mount_points
    facts = source.with_missing_detail(source.facts(answer, filters, corrected))
    event_cost = facts.event_cost_ns or answer["event_cost"]
    rows = [
        _operation(group, by, mounts)
        for group in answer["groups"]
        if selected(group["operation"], patterns)
    ]
    if by == "daemon-thread":
        starts = source.start_functions(o.key for o in rows if isinstance(o.key, int))
        rows = [replace(o, start_function=starts.get(o.key, "")) for o in rows]  # type: ignore[arg-type]
    if patterns and not by and any(_is_blocked(o) for o in rows):
        disks = disk_waits(source, filters)
        rows = [replace(o, disk_ns=disks.get(o.operation, {})) if o.waits else o for o in rows]
    by_name: dict[tuple[str, bool], int] = {}
    for o in rows:
        whole = (o.operation, o.waits)
        by_name[whole] = by_name.get(whole, 0) + o.total_ns
    rows.sort(
        key=lambda o: (
            not o.waits,
            -by_name[o.operation, o.waits],
            o.operation,
            _order(o.key) if by == "size" else (),
            -o.total_ns,
            _order(o.key),
        )
    )
    calls = [
        _calls(row, by, mounts)
        for row in (() if by in _OF_REQUESTS else answer["calls"])
        if any(selected(name, patterns) for name in (row["operation"], *row["operations"]))
    ]
    calls.sort(key=lambda c: (-c.rest_ns, -c.total_ns, c.syscall, _order(c.key)))
    joined = tuple(_joined(probes, facts))
    if not rows:
        facts = source.with_removed(facts, filters, patterns)
    return Stages(tuple(rows), by, event_cost, joined, facts, tuple(calls))


def _is_blocked(operation: OperationStages) -> bool:
    """Return whether the daemon's threads waited for something."""
    inside = (s for s in operation.stages if "daemon" in s.name.split("+"))
    return operation.waits and any(stage.parts_ns.get("blocked") for stage in inside)


def _calls(fields: core.native.Fields, by: str, mounts: Mapping[int, str]) -> MountCalls:
    cached = CallsWithoutRequest(**fields["cached"]) if fields["cached"] else None
    return MountCalls(**{**fields, "key": _key(fields["key"], by, mounts), "cached": cached})


def _key(key: str | int | None, by: str, mounts: Mapping[int, str]) -> str | int | None:
    if not by:
        return ""
    return mounts.get(int(key), key) if by == "mount" and key is not None else key


def _order(key: str | int | None) -> tuple[bool, int, str]:
    return (key is None, key if isinstance(key, int) else 0, str(key))


def _operation(fields: core.native.Fields, by: str, mounts: Mapping[int, str]) -> OperationStages:
    stages = tuple(Stage(**stage) for stage in fields["stages"])
    probes = [s.probes_ns for s in stages if s.probes_ns is not None]
    probes_ns = sum(probes) if probes else None
    key = _key(fields["key"], by, mounts)
    return OperationStages(**{**fields, "key": key, "stages": stages, "probes_ns": probes_ns})


def _joined(probes: Sequence[core.native.Probe], facts: Facts) -> list[Reason]:
    """List the stages that this recording cannot separate."""
    roles = {(p.layer, p.role) for p in probes}
    again = "fusetools record -- WORKLOAD"
    by_layer = {m.layer: m for m in facts.missing}
    missing = []

    def miss(code: Code, layer: str, fix: str = again) -> None:
        if m := by_layer.get(layer):
            subject = {**m.subject, "cause": m.code.value}
            missing.append(Reason(code, subject, m.figures, m.fix, layer))
        else:
            missing.append(Reason(code, fix=fix, layer=layer))

    syscalls = ("syscall", "sys_enter") in roles
    entered = [
        p
        for p in probes
        if p.layer == "kernel"
        and p.role in ("entry", "graph_entry")
        and p.function != "request_wait_answer"
        and not any(q.event == p.event and q.layer == "request" for q in probes)
    ]
    if not syscalls:
        miss(Code.NO_VFS_STAGES, "syscall")
    elif not entered:
        miss(Code.VFS_ENTRY_JOINED, "kernel")
    callbacks = ("daemon", "entry") in roles
    if not callbacks and not syscalls:
        miss(Code.DAEMON_NOT_SPLIT, "daemon")
    elif not callbacks:
        miss(Code.DAEMON_FROM_READ, "daemon", "")
    if not (syscalls or ("request", "sent") in roles):
        miss(Code.QUEUE_JOINED, "syscall")
    if ("syscall", "switch") not in roles:
        miss(Code.CALLER_WAKEUP_JOINED, "off_cpu")
    return missing
