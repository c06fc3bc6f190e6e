"""Requests that already wait when a recording begins: their begin is not recorded."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusetools.host.fusectl import counter, fusectl
from fusetools.reasons import Code, Reason, Value

if TYPE_CHECKING:  # both modules are slow to import
    from fusetools.results.stuck import Blocked, Stuck

NAMED = 3  # limit of the callers


def waited(connections: Sequence[int]) -> list[Reason]:
    """Return the waiting requests of FUSE connections now; their mounts are not touched."""
    with fusectl() as (_, directory):
        if directory is not None:
            connections = [n for n in connections if counter(directory, n, "waiting") != 0]
    if not connections:
        return []
    from fusetools.stuck import machine
    from fusetools.stuck.diagnosis import stuck

    return missing(stuck(machine.read()), connections)


def missing(result: Stuck, connections: Sequence[int]) -> list[Reason]:
    """Return the waiting requests by mount, if callers have waited there for ``older_seconds``.

    On a busy mount a few requests are always in flight.
    """
    rows = []
    for mount in result.mounts:
        if mount.connection not in connections:
            continue
        late = [one for one in mount.callers if (one.age_seconds or 0.0) >= result.older_seconds]
        if not late or mount.fstype == "autofs":
            continue
        subject = {"path": mount.path, **_named(late[:NAMED])}
        fix = f"fusetools stuck --mount {shlex.quote(mount.path)}"
        figures = {"callers": len(late)}
        rows.append(Reason(Code.ALREADY_WAITING, subject, figures, fix, "request"))
    return rows


def _named(callers: Sequence[Blocked]) -> dict[str, Value]:
    """Return a column for each fact."""
    ages = [one.age_seconds for one in callers]
    return {
        "comms": tuple(one.comm for one in callers),
        "pids": tuple(one.pid for one in callers),
        "tids": tuple(one.tid for one in callers),
        "paths": tuple(one.path or "" for one in callers),
        "ages_ns": tuple("" if age is None else round(1e9 * age) for age in ages),
    }
