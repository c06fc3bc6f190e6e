"""How a mount is, whether a hang may not have been seen, and why: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetools.figures import plural
from fusetools.host.facts import VIRTIOFS
from fusetools.now.moment import Connection, Moment
from fusetools.reasons import Reason
from fusetools.results.stuck import StuckMount, Unknown

MOST_NAMED = 8  # processes and threads
AS_ROOT = "sudo fusetools stuck"


def state(
    moment: Moment,
    connection: Connection,
    caused: bool,
    callers: int,
    own: int,
    unheld: bool = False,
) -> str:
    """Return StuckMount.state. ``caused``: a cause of a hang was found; ``own``: those callers that
    are fusetools and have waited for long; ``unheld``: a file lock is waited for whose holder is
    not known."""
    if caused:
        return "stuck"
    # All requests are theirs: nobody else waits, seen or not.
    if own and own == callers == connection.waiting:
        return "own"
    if unheld or _is_unknown(moment, connection):
        return "unknown"
    return "busy" if callers or connection.waiting else "quiet"


def _is_unknown(moment: Moment, connection: Connection) -> bool:
    """Return whether a hang of a mount that seems well may not have been seen: somebody may wait
    who was not examined, or its daemon was not found in time, which may be stopped."""
    if connection.late:
        return True
    if connection.waiting == 0 or connection.settled:
        return False
    counted = moment.counted or connection.fstype in (VIRTIOFS, "autofs")
    return moment.partial or not counted


def unknown(
    moment: Moment, mounts: Sequence[StuckMount], all_mounts: bool, unheld: Sequence[Reason] = ()
) -> tuple[Unknown, ...]:
    """Return why it is not known whether one of these mounts hangs, or another one if they are all
    that are known; nothing if it is known."""
    doubt = any(mount.state == "unknown" for mount in mounts)
    more = tuple(_reasons(moment)) if doubt or (all_mounts and _elsewhere(moment)) else ()
    return (*(Unknown("lock", reason.text) for reason in unheld), *more)


def _elsewhere(moment: Moment) -> bool:
    """Return whether somebody who was not examined may wait for a mount that is not listed: for
    automount, whose callers nobody counts, or for one in a mount namespace that was not read."""
    unread = moment.unread and (moment.unseen or moment.hidden)
    return bool(unread or (moment.autofs and moment.unseen))


def _reasons(moment: Moment) -> Iterator[Unknown]:
    if not moment.counted:
        fix = "mount -t fusectl fusectl /sys/fs/fuse/connections" if moment.root else AS_ROOT
        yield Unknown("fusectl", "the kernel's list of FUSE connections cannot be read", fix)
    if numbers := list(dict.fromkeys((*moment.unseen, *moment.hidden))):
        who = plural(len(numbers), "process or thread", "processes or threads")
        some = ", ".join(map(str, numbers[:MOST_NAMED]))
        more = " …" if len(numbers) > MOST_NAMED else ""
        text = f"{who} that may wait could not be examined in time: {some}{more}"
        if moment.whose:
            text += f" ({', '.join(f'{count:,} of {user}' for user, count in moment.whose)})"
        yield Unknown("time", text, "fusetools stuck --watch")
    if any(connection.late for connection in moment.connections) and not moment.unseen:
        yield Unknown("time", "not all that may be a daemon could be examined in time")
    if not moment.root:
        yield Unknown("user", "only root sees what the processes of others wait for", AS_ROOT)
    if moment.pid_namespace:
        text = "processes outside of this pid namespace cannot be seen; look on the host itself"
        yield Unknown("pid_namespace", text)
