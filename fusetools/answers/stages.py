"""Requests' time by stage, from the native core's sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions, selected
from fusetools.answers.source import Source
from fusetools.reasons import Code, Reason
from fusetools.results.facts import Facts
from fusetools.results.stages import CallsWithoutRequest, MountCalls, OperationStages, Stage, Stages

# Names of each stage's parts in the core's order, the rest last. A part without a name is always 0.
_PARTS = {
    "queue": ("no_thread", "runnable", "wakeup", "copy"),
    "daemon": ("blocked", "runnable", "elsewhere", "on_cpu"),
    "caller_wakeup": ("runnable", "", "", "wakeup"),
}


_OF_REQUESTS = ("daemon-thread", "size")  # keys that a system call does not have
_OTHER_PARTS = ("blocked", "runnable", "", "on_cpu")


def parts_of(stage: str, times: Sequence[int], rest: int) -> dict[str, int]:
    """Name the core's parts of a stage (native/core/src/answers/stages.rs)."""
    names = _PARTS.get(stage, _OTHER_PARTS)
    return {name: ns for name, ns in zip(names, (*times, rest)) if name}


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
    answer = source.query(core.native.stages, probes, native, by)
    mounts = source.mount_points
    facts = source.with_missing_detail(source.facts(answer, filters, corrected))
    event_cost = facts.event_cost_ns or answer["event_cost"]
    # Without a measurement, use the upper bound of an event's cost that the core found.
    guess = None if "cost" in native or not event_cost else (event_cost, source.pair_cost or 0)
    is_known = "cost" in native or guess is not None
    rows = [
        _operation(group, by, mounts, is_known, guess)
        for group in answer["groups"]
        if selected(group["operation"], patterns)
    ]
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
    return Stages(tuple(rows), by, event_cost, joined, facts, tuple(calls))


def _calls(row: core.native.MountCalls, by: str, mounts: Mapping[int, str]) -> MountCalls:
    total = row["total"]
    outside = {name: ns for name, ns in row["outside"].items() if ns}
    return MountCalls(
        syscall=row["syscall"],
        operation=row["operation"],
        operations=tuple(row["operations"]),
        key=_key(row["key"], by, mounts),
        calls=total["count"],
        unreturned=row["unreturned"],
        requests=row["requests"],
        total_ns=total["sum"],
        in_requests_ns=total["sum"] - sum(outside.values()),
        outside_ns=outside,
        mean_ns=total["sum"] / total["count"],
        p50_ns=total["p50"] or 0,
        p99_ns=total["p99"] or 0,
        max_ns=total["max"] or 0,
        least_ns=row["least"],
        cached=_cached(row["cached"]),
    )


def _cached(of: core.native.Durations) -> CallsWithoutRequest | None:
    if not of["count"]:
        return None
    return CallsWithoutRequest(
        calls=of["count"],
        total_ns=of["sum"],
        mean_ns=of["sum"] / of["count"],
        p50_ns=of["p50"] or 0,
        p99_ns=of["p99"] or 0,
        max_ns=of["max"] or 0,
    )


def _key(key: str | int | None, by: str, mounts: Mapping[int, str]) -> str | int | None:
    if not by:
        return ""
    return mounts.get(int(key), key) if by == "mount" and key is not None else key


def _order(key: str | int | None) -> tuple[bool, int, str]:
    return (key is None, key if isinstance(key, int) else 0, str(key))


def _operation(
    group: core.native.StageGroup,
    by: str,
    mounts: Mapping[int, str],
    is_known: bool,
    guess: tuple[int, int] | None,
) -> OperationStages:
    fates = dict(group["fates"])
    matched = fates.pop("matched")
    total = group["total"]
    timed = total["count"]
    stages = tuple(_stage(stage, timed, total["sum"], is_known, guess) for stage in group["stages"])
    probes = [s.probes_ns for s in stages if s.probes_ns is not None]
    return OperationStages(
        operation=group["operation"],
        waits=group["waits"],
        key=_key(group["key"], by, mounts),
        requests=matched + sum(fates.values()),
        matched=matched,
        unmatched={reason: n for reason, n in fates.items() if n},
        errors=group["errors"],
        ring=group["ring"],
        handed=group["handed"],
        stages=stages,
        total_ns=total["sum"],
        mean_ns=total["sum"] / timed if timed else None,
        p50_ns=total["p50"],
        p99_ns=total["p99"],
        max_ns=total["max"],
        probes_ns=sum(probes) if probes else None,
        timed=timed,
        least_ns=group["least"],
    )


def _stage(
    stage: core.native.Stage,
    timed: int,
    whole: int,
    is_known: bool,
    guess: tuple[int, int] | None,
) -> Stage:
    """Convert a stage. ``is_known``: the overhead of recording is known; ``guess``: ns of an event
    and of a pair of probes, if they were not measured."""
    name, total = stage["stage"], stage["sum"]
    parts = {}
    known, times, rest = stage["parts"]
    if known:
        parts = parts_of(name, times, rest)
        parts["unknown"] = total - sum(times) - rest
        for part in ("elsewhere", "unknown"):
            if not parts.get(part, 1):
                del parts[part]
    probes: float | None = stage["taken"] if is_known else None
    if guess is not None:
        event, pair = guess
        probes = min(stage["events"] * event + stage["uprobes"] * pair / 4, float(total))
    return Stage(
        name=name,
        requests=stage["count"],
        total_ns=total,
        mean_ns=total / timed,
        share=total / whole if whole else 0.0,
        p50_ns=stage["p50"],
        p99_ns=stage["p99"],
        max_ns=stage["max"],
        parts_ns=parts,
        probes_ns=probes,
        unsplit_ns=stage["unsplit"],
    )


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
