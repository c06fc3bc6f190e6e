"""Each request's whole story, as numpy columns."""

from __future__ import annotations

from fusetools.answers.catalogue import needed
from fusetools.answers.filters import Filters
from fusetools.answers.source import Source
from fusetools.results.stories import MARKS, Stories

_TYPES = {
    **dict.fromkeys(("operation", "fate", "waits", "ring"), "u1"),
    **dict.fromkeys(("opcode", "nth", "comm"), "<u4"),
    **dict.fromkeys(("error", "pid", "tid", "daemon_pid", "daemon_tid", "syscall"), "<i4"),
    **dict.fromkeys(("connection", "unique", "nodeid", "size"), "<u8"),
    **dict.fromkeys(("request_len", "reply_len"), "<u8"),
    **dict.fromkeys(("no_thread", "no_cpu", "asleep"), "<i8"),
    **dict.fromkeys(("blocked", "runnable", "elsewhere"), "<i8"),
    **dict.fromkeys((*MARKS, "until"), "<u8"),
}


def stories(source: Source, filters: Filters) -> Stories:
    """As numpy columns."""
    catalogue = needed(source.catalogue, source.events)
    answer = source.ask("stories", catalogue, source.core_filters(filters))
    import numpy as np

    raw = answer["stories"]
    return Stories(
        operations=tuple(answer["operations"]),
        fates=tuple(answer["fates"]),
        comms=tuple(answer["comms"]),
        **{name: np.frombuffer(raw[name], kind) for name, kind in _TYPES.items()},
    )
