"""Requests by file, directory, process, and so on."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.operations import expressions
from fusetools.answers.requests import RequestQuery, error_name, guessed
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.patterns import expression
from fusetools.reasons import Code, Reason
from fusetools.results.errors import Answered
from fusetools.results.groups import OF_PROCESSES, Groups, RequestGroup, Times

# Names of the core's groupings; others have the same name.
_BY = {"cgroup": "label", "job": "label", "host": ""}
_LACKS = {"path": Code.NO_PATH, "caller": Code.NO_CALLER, "label": Code.NOT_NOTED}


def groups(
    source: Source,
    by: str,
    patterns: Sequence[str],
    filters: Filters,
    order: str = "time",
    most: int = 20,
    least: int = 0,
    path: str | None = None,
    corrected: bool = False,
) -> Groups:
    """Return the requests by group; the arguments as in Recording.groups().

    Error: the recording does not have what to group by, or a pattern matches no operation."""
    wanted = expressions(patterns, source.path), least, None if path is None else expression(path)
    if corrected:
        source.corrected()  # raises its error before the pass over the recording
    processes = {process.pid: process for process in source.session.processes}
    if by in OF_PROCESSES and not processes:
        raise Error(
            f"cannot group the requests of {source.path} by {by}",
            "it does not hold the user and the cgroup of processes: it was made by an earlier "
            "version or by perf",
            source.with_detail(source.detail),
        )
    labels = {}
    if by in OF_PROCESSES:
        every = {pid: getattr(process, by) for pid, process in processes.items()}
        labels = {pid: label for pid, label in every.items() if label or by == "job"}
    query = RequestQuery(source)
    native = source.core_filters(filters, corrected=corrected)
    mounts = query.names.mounts
    grouping, listing = (_BY.get(by, by), labels), (order, most)
    answer = source.query(
        core.native.groups, query.probes, native, wanted, mounts, grouping, listing
    )
    facts = source.facts(answer, filters, corrected)
    rows = answer["groups"]
    if not rows:
        facts = source.with_removed(facts, filters, patterns, least, path)
    total = sum(row["whole"]["total_ns"] for row in rows) or 1
    requests = sum(row["requests"] for row in rows) or 1
    exact = not guessed(query.probes)

    def group(row: core.native.Fields) -> RequestGroup:
        label = facts.host if by == "host" else row["label"] or ""
        process = processes.get(row["pid"] or 0)
        if process and process.comm in ("", row["comm"]):  # else it ran another program then
            label = process.command
        unknown = _LACKS.get(row.pop("lacks") or "")
        if not (unknown or label or row["others"] or row["pid"]):
            unknown = Code.NO_JOB if by == "job" else Code.NO_HOST
        errors = (Answered(error_name(number), times) for number, times in row["errors"])
        more = {
            "label": label,
            "unknown": Reason(unknown) if unknown else None,
            "requests_share": row["requests"] / requests,
            "whole": Times(**row["whole"]),
            "time_share": row["whole"]["total_ns"] / total,
            "latency": Times(**row["latency"]),
            "errors": tuple(sorted(errors, key=lambda error: -error.times)),
            "negative": row["negative"] if exact else None,
            "unanswered": tuple(Answered(*fate) for fate in row["unanswered"]),
        }
        return RequestGroup(**{**row, **more})

    return Groups(
        by=by,
        order=order,
        groups=tuple(map(group, rows)),
        guessed=not exact,
        pathless=None if path is None else answer["pathless"],
        inherited=answer["inherited"],
        full=answer["full"],
        facts=source.with_missing_detail(facts, ["request", "daemon"]),
    )
