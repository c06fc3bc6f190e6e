"""Timeline of one request."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.requests import (
    Names,
    RequestQuery,
    error_name,
    guessed,
    request,
    threads_of,
    with_starts,
)
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.figures import signal_name
from fusetools.results.request import Request
from fusetools.results.show import Shown, TimelineEvent

# Sentences by the action's code (native/core/src/answers/replay/timeline.rs).
_SENTENCES = {
    "sleeps": "sleeps",
    "preempted": "loses the CPU",
    "interrupted": "is woken by an interrupt (a timer or a device)",
    "wakes": "wakes {task}",
    "signal": "is sent {signal}",
    "connects": "connects to {peer}",
    "fetched": "has a request in its ring",
    "committed": "submits to its ring",
    "ring_wait": "waits for its ring",
    "enters": "{name}({peer})",
    "returns": "{name}() = {result}",
    "begin": "{request} is queued",
    "sent": "{request} is copied to the daemon",
    "copies": "copies the answer",
    "end": "{request} ends{error}",
    "calls": "{name}()",
    "leaves": "{name} returns",
    "inode": "answers inode {inode}",
    "no_file": "answers: no such file",
    "callback": "{name}({arguments})",
}


def only(
    matches: Sequence[core.native.NamedRequest], unique: int, names: Names, path: Path
) -> core.native.NamedRequest:
    """Return the single request with a number. Raise Error if there are several, or none."""
    if len(matches) == 1:
        return matches[0]
    file = shlex.quote(str(path))
    if not matches:
        raise Error(
            f"{path} has no request {unique}",
            "these commands print the numbers of requests",
            f"fusetools slow -i {file}\nfusetools export -i {file} --format csv -o requests.csv",
        )
    mounts = list(dict.fromkeys(names.mount(row.connection) for row in matches))
    if len(mounts) > 1 and all(mounts):
        raise Error(
            f"{len(matches)} requests have the number {unique}",
            f"they are of {', '.join(mounts)}",
            f"fusetools show {unique} -i {file} --mount {shlex.quote(mounts[0])}",
        )
    times = ", ".join(str(min((time for _, time in row.marks), default=0)) for row in matches[:5])
    raise Error(
        f"{len(matches)} requests have the number {unique}",
        f"they begin at {times} ns on the recording's clock",
        f"fusetools show {unique} -i {file} --from TIME --to TIME",
    )


def show(source: Source, unique: int, filters: Filters) -> Shown:
    """Return one request's timeline, by its number. Raise Error if there is none, or several."""
    query = RequestQuery(source)
    answer, facts = query(core.native.numbered, filters, query.connected, unique)
    row = only(answer["rows"], unique, query.names, source.path)
    shown = request(row, answer["first"], query.names)
    others = [a["tid"] for line in answer["lines"] for a in (line["caller"], line["daemon"]) if a]
    starts = source.start_functions([*threads_of(shown), *others])
    shown = with_starts(shown, starts)
    first = min((time for _, time in row.marks), default=0)
    moments = tuple(
        TimelineEvent(
            line["time"] - first,
            sentence(line["caller"], shown, starts),
            sentence(line["daemon"], shown, starts),
        )
        for line in answer["lines"]
    )
    return Shown(shown, moments, guessed(query.probes), source.with_missing_detail(facts))


def sentence(action: core.native.Action | None, shown: Request, starts: Mapping[int, str]) -> str:
    """Return an action of the shown request's caller or daemon in words. ``starts``: start
    functions by thread."""
    if action is None:
        return ""
    code, tid, known, unique = action["code"], action["tid"], action["number"], action["unique"]
    number = known or 0
    task = _task(tid, shown)
    task += f" ({starts[tid]})" if tid is not None and tid in starts else ""
    if code == "runs":
        return "runs" if known is None else f"runs on CPU {number}"
    if code == "woken":
        return f"is woken by {task}" if tid is not None else "is woken"
    error = error_name(-number) if number < 0 else ""
    return _SENTENCES[code].format(
        name=action["name"],
        inode=action["inode"],
        task=task,
        peer=action["peer"] or "",
        signal=signal_name(number),
        result="?" if known is None else error if number > -4096 and error else number,
        request=shown.operation if unique is None else f"request {unique}",
        error=error and f" with {error}",
        arguments=_arguments(action),
    )


def _task(tid: int | None, shown: Request) -> str:
    if tid == shown.tid:
        return f"{shown.comm} {tid}".strip()
    if tid == shown.daemon_tid:
        return f"{shown.daemon_comm or 'daemon'} {tid}"
    return f"thread {tid}"


def _arguments(action: core.native.Action) -> str:
    inode, file = ("" if action["inode"] is None else f"inode {action['inode']}"), action["file"]
    parts = (
        f'"{file}" in {inode}' if file and inode else f'"{file}"' if file else inode,
        "" if action["size"] is None else f"{action['size']} bytes",
        "" if action["offset"] is None else f"at {action['offset']}",
        "" if action["unique"] is None else f"of request {action['unique']}",
    )
    return ", ".join(filter(None, parts))
