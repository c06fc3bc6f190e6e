"""Export of all requests for other programs."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.requests import Names, RequestQuery
from fusetools.answers.source import Source
from fusetools.host.files import by_descriptor
from fusetools.output import Output
from fusetools.results.envelope import envelope
from fusetools.results.export import Exported
from fusetools.results.facts import Facts


def export(source: Source, path: Path, form: str, filters: Filters) -> Exported:
    """Write all requests to a file, as "perfetto", "csv" or "json".

    The file appears once it is complete; after an error there is none."""
    query = RequestQuery(source)

    def rows(descriptor: int) -> tuple[core.native.Export, Facts]:
        answer, facts = query(core.native.export, filters, str(by_descriptor(descriptor)), form)
        os.lseek(descriptor, 0, os.SEEK_END)
        with open(descriptor, "w", encoding="ascii", closefd=False) as file:
            file.write(_end(answer, form, query.names, facts))
        return answer, facts

    with Output(str(path)) as target:
        if not target.printed:
            with target.part() as descriptor:
                answer, facts = rows(descriptor)
        else:
            with tempfile.TemporaryFile() as file:
                answer, facts = rows(file.fileno())
                file.seek(0)
                shutil.copyfileobj(codecs.getreader("utf-8")(file), target.stream)
    return Exported(str(path), answer["rows"], facts)


def _end(answer: core.native.Export, form: str, names: Names, facts: Facts) -> str:
    """Return the text after the last row."""
    if form == "csv":
        return ""
    if form == "json":
        mounts = {str(connection): path for connection, path in names.mounts.items()}
        rest = {"first_ns": answer["first"], "connections": mounts, **envelope("export", facts)}
    else:
        rest = {"displayTimeUnit": "ns", "otherData": {"recording": facts.name}}
    events = trace_end(answer["servants"], names) if form == "perfetto" else ""
    return f"{events}\n], {json.dumps(rest)[1:]}\n"


def trace_end(servants: Iterable[tuple[int, int]], names: Names) -> str:
    """Return a trace's metadata events: names and order of the daemons' processes and threads."""
    events = []
    for pid in sorted({pid for pid, _ in servants}):
        name = {"name": names.daemons.get(pid) or "daemon"}
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": name})
        order = {"sort_index": 1}
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": pid, "args": order}
        )
        events += [
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": name}
            for owner, tid in servants
            if owner == pid
        ]
    return "".join(",\n" + json.dumps(event) for event in events)
