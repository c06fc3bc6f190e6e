"""Single calls and requests as numpy columns."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools import core
from fusetools.answers.catalogue import prune
from fusetools.answers.filters import Filters
from fusetools.answers.source import Source
from fusetools.results.calls import Calls, RequestColumns


def calls(source: Source, patterns: Sequence[str], filters: Filters) -> Calls:
    """Return single calls as columns; ``patterns`` as in hist()."""
    import numpy as np

    columns = _columns(source, patterns, filters)
    raw = columns["calls"]
    return Calls(
        functions=tuple(columns["functions"]),
        layer=np.frombuffer(raw["layer"], "u1"),
        function=np.frombuffer(raw["function"], "<u2"),
        start_ns=np.frombuffer(raw["start"], "<u8"),
        duration_ns=np.frombuffer(raw["duration"], "<u8"),
        pid=np.frombuffer(raw["pid"], "<i4"),
        tid=np.frombuffer(raw["tid"], "<i4"),
        unique=np.frombuffer(raw["unique"], "<u8"),
    )


def requests(source: Source, filters: Filters) -> RequestColumns:
    """Return FUSE requests as columns."""
    import numpy as np

    raw = _columns(source, (), filters)["requests"]
    return RequestColumns(
        connection=np.frombuffer(raw["connection"], "<u8"),
        unique=np.frombuffer(raw["unique"], "<u8"),
        opcode=np.frombuffer(raw["opcode"], "<u4"),
        begin_ns=np.frombuffer(raw["begin"], "<u8"),
        end_ns=np.frombuffer(raw["end"], "<u8"),
        error=np.frombuffer(raw["error"], "<i4"),
        pid=np.frombuffer(raw["pid"], "<i4"),
        tid=np.frombuffer(raw["tid"], "<i4"),
        callback_start_ns=np.frombuffer(raw["callback_start"], "<u8"),
        callback_end_ns=np.frombuffer(raw["callback_end"], "<u8"),
        sent_ns=np.frombuffer(raw["sent"], "<u8"),
        woken_ns=np.frombuffer(raw["woken"], "<u8"),
    )


def _columns(source: Source, patterns: Sequence[str], filters: Filters) -> core.native.Columns:
    names = [name for _, name in source.functions]
    needed = prune(source.catalogue, patterns, (), filters, names)
    needed += [p for p in source.catalogue if p.role == "sent" and p not in needed]
    return source.query(core.native.columns, needed, source.core_filters(filters))
