"""Commands that end a hang, for the user to run: fusetools never runs them."""

from __future__ import annotations

import os
import shlex

from fusetools.reasons import Code, Reason
from fusetools.results.stuck import Fix
from fusetools.stuck.moment import Connection, Process


def restart(process: Process, halt: Reason) -> tuple[Fix, ...]:
    """Return what resumes a frozen or stopped process; no command resumes others."""
    if halt.code is Code.HALT_FROZEN:
        return tuple(map(_thaw, process.frozen))
    if halt.code is Code.HALT_STOPPED:
        return (Fix(f"kill -CONT {process.pid}", f"lets {process.comm} run again"),)
    return ()


def _thaw(group: str) -> Fix:
    name = "freezer.state" if "/freezer/" in group else "cgroup.freeze"
    value = "THAWED" if name == "freezer.state" else "0"
    place = shlex.quote(f"{group}/{name}")
    return Fix(f"echo {value} > {place}", "lets the cgroup run again")


def thaw(path: str) -> tuple[Fix, ...]:
    """Return what thaws the file system of a file, which may not exist yet."""
    if not path.startswith("/"):
        return ()
    place = shlex.quote(os.path.dirname(path))
    what = "lets programs write there again; a snapshot or a backup that froze it fails"
    return (Fix(f'fsfreeze -u "$(findmnt -no TARGET -T {place})"', what),)


def abort(connection: Connection, fusectl: str) -> tuple[Fix, ...]:
    """Return the command that aborts a connection, by fusectl's directory ("" if not mounted)."""
    what = "ends each request on it with an error; the mount can only be unmounted then"
    if fusectl:
        place = shlex.quote(f"{fusectl}/{connection.number}/abort")
        return (Fix(f"echo 1 > {place}", what),)
    place = "/sys/fs/fuse/connections"
    command = f"mount -t fusectl fusectl {place} && echo 1 > {place}/{connection.number}/abort"
    return (Fix(command, what),)
