"""Export of all requests for other programs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.flame import prepare
from fusetools.answers.requests import Names, RequestQuery
from fusetools.answers.source import Source
from fusetools.errors import Error
from fusetools.host.files import by_descriptor
from fusetools.output import Output
from fusetools.results.envelope import envelope
from fusetools.results.export import Exported
from fusetools.results.facts import Facts


def export(source: Source, path: Path, form: str, filters: Filters) -> Exported:
    """Write all requests to a file, as "perfetto", "csv" or "json".

    The file appears once it is complete; after an error there is none."""
    query = RequestQuery(source)
    names = query.names
    states, without = _states(source, filters) if form == "perfetto" else (None, "")

    def rows(descriptor: int) -> tuple[core.native.Export, Facts]:
        to = str(by_descriptor(descriptor))
        named = (names.mounts, names.daemons)
        answer, facts = query(core.native.export, filters, to, form, named, states)
        if form == "json":
            os.lseek(descriptor, 0, os.SEEK_END)
            with open(descriptor, "w", encoding="ascii", closefd=False) as file:
                file.write(_end(answer, names, facts))
        return answer, facts

    with Output(str(path)) as target:
        if not target.printed:
            with target.part() as descriptor:
                answer, facts = rows(descriptor)
        else:
            with tempfile.TemporaryFile() as file:
                answer, facts = rows(file.fileno())
                file.seek(0)
                target.stream.flush()
                shutil.copyfileobj(file, target.stream.buffer)
    return Exported(str(path), answer["rows"], without, facts)


def _states(
    source: Source, filters: Filters
) -> tuple[tuple[Sequence[core.native.Probe], core.native.Ask] | None, str]:
    """Return the question for the states of threads, or why the recording has none."""
    # A thread's state does not depend on the selected requests.
    span = Filters(start_ns=filters.start_ns, end_ns=filters.end_ns)
    try:
        rows, ask = prepare(source, "off-cpu", (), (), span, (), True, None, None)
    except Error as error:
        return None, error.what
    if ask["graph"] != "off-cpu":
        return None, f"{source.path.name} holds no switches of tasks"
    return (rows, ask), ""


def _end(answer: core.native.Export, names: Names, facts: Facts) -> str:
    """Return the text after the last object."""
    mounts = {str(connection): path for connection, path in names.mounts.items()}
    rest = {"first_ns": answer["first"], "connections": mounts, **envelope("export", facts)}
    return f"\n], {json.dumps(rest)[1:]}\n"
