"""The state of a mount, and whether and why a hang may have been missed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetools.figures import plural
from fusetools.host.facts import VIRTIOFS
from fusetools.reasons import Reason
from fusetools.results.stuck import StuckMount, Unknown
from fusetools.stuck.moment import Connection, Moment

MOST_NAMED = 8  # kinds of objects counted: processes and threads
AS_ROOT = "sudo fusetools stuck"


def state(
    moment: Moment,
    connection: Connection,
    caused: bool,
    callers: int,
    own: int,
    unheld: bool = False,
) -> str:
    """Return StuckMount.state.

    ``caused``: a cause of a hang was found; ``own``: the callers that belong to fusetools and have
    waited for long; ``unheld``: a caller waits for a file lock whose holder is unknown.
    """
    if caused:
        return "stuck"
    # All requests are fusetools' own: nobody else waits, seen or not.
    if own and own == callers == connection.waiting:
        return "own"
    if unheld or _is_unknown(moment, connection):
        return "unknown"
    return "busy" if callers or connection.waiting else "quiet"


def _is_unknown(moment: Moment, connection: Connection) -> bool:
    """Return whether a hang of a mount that seems well may have been missed.

    A caller may wait that was not examined, or the daemon was not found in time and may be stopped.
    """
    if connection.late:
        return True
    if connection.waiting == 0 or connection.settled:
        return False
    counted = moment.counted or connection.fstype in (VIRTIOFS, "autofs")
    return moment.partial or not counted


def unknown(
    moment: Moment, mounts: Sequence[StuckMount], all_mounts: bool, unheld: Sequence[Reason] = ()
) -> tuple[Unknown, ...]:
    """Return why it is unknown whether one of these mounts hangs; nothing if it is known.

    If these are all known mounts, a hang of an unknown mount counts, too.
    """
    doubt = any(mount.state == "unknown" for mount in mounts)
    more = tuple(_reasons(moment)) if doubt or (all_mounts and _elsewhere(moment)) else ()
    return (*(Unknown("lock", reason.text) for reason in unheld), *more)


def _elsewhere(moment: Moment) -> bool:
    """Return whether an unexamined caller may wait for a mount that is not listed.

    Nobody counts the callers of automount, and a mount namespace that was not read may hold more
    mounts.
    """
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
