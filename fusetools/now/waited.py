"""What waits already when a recording begins: requests whose beginning is not in it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusetools.figures import plural
from fusetools.missing import Missing
from fusetools.now.fusectl import counter, fusectl

if TYPE_CHECKING:  # slow to import, as what looks for callers
    from fusetools.results.stuck import Blocked, Stuck

NAMED = 3  # of the callers


def waited(connections: Sequence[int]) -> list[Missing]:
    """Of FUSE connections, now; their mounts are not touched."""
    with fusectl() as (_, directory):
        if directory is not None:
            connections = [n for n in connections if counter(directory, n, "waiting") != 0]
    if not connections:
        return []
    from fusetools.now import machine
    from fusetools.now.stuck import stuck

    return missing(stuck(machine.read()), connections)


def missing(result: Stuck, connections: Sequence[int]) -> list[Missing]:
    """By mount, if callers have waited there for ``older_seconds``: of a busy mount a few requests
    are always on their way."""
    rows = []
    for mount in result.mounts:
        if mount.connection not in connections:
            continue
        late = [one for one in mount.callers if (one.age_seconds or 0.0) >= result.older_seconds]
        if not late or mount.fstype == "autofs":
            continue
        more = len(late) - NAMED
        who = ", ".join(map(_who, late[:NAMED])) + (f" and {more:,} more" if more > 0 else "")
        what = f"what {plural(len(late), 'caller')} waited for on {mount.path} already"
        why = f"it began before the recording: {who}"
        fix = f"fusetools stuck --mount {shlex.quote(mount.path)}"
        rows.append(Missing(what, why, fix, "request"))
    return rows


def _who(one: Blocked) -> str:
    from fusetools.results.stuck import ago

    thread = f"pid {one.pid}" if one.tid == one.pid else f"thread {one.tid}"
    where = f", {one.path}" if one.path else ""
    return f"{one.comm} ({thread}{where}), {ago(one.age_seconds)}"
