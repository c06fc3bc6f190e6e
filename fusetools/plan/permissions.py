"""Access to what a recording shows: decided here and nowhere else (SECURITY.md has the table).

Root sees everything. A user who may only run `sudo fusetools record` sees requests, callbacks,
times and the functions in stacks of every daemon, but reads memory only where the kernel would let
that user read it without us.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusetools.errors import Error
from fusetools.host.facts import Mount
from fusetools.plan.daemons import Target

_DETECT = "fusetools record --mount PATH -- …   # detects the daemon"


def served(
    pid: int,
    connections: Collection[int | None],
    shown: bool,
    mounts: Sequence[Mount],
    wanted: Sequence[Mount],
) -> tuple[int, ...]:
    """Return the connections among the ``wanted`` mounts that process ``pid`` of --pid serves.

    ``connections``: those of its descriptors of FUSE's device, None where the kernel does not tell;
    ``shown``: this kernel shows them; ``mounts``: all. Raise Error if it serves none of them.
    """
    if not connections:
        raise Error(f"process {pid} serves no FUSE mount", "it has not opened /dev/fuse", _DETECT)
    known = tuple(mount.connection for mount in wanted if mount.connection in connections)
    if known:
        return known
    others = [mount.path for mount in mounts if mount.connection in connections]
    if others:
        what = f"process {pid} does not serve {', '.join(mount.path for mount in wanted)}"
        fix = f"fusetools record --mount {others[0]} -- …"
        raise Error(what, f"it serves {', '.join(others)}", fix)
    if shown or None not in connections:
        why = "its /dev/fuse belongs to no mount of this host"
        raise Error(f"process {pid} serves no FUSE mount", why, _DETECT)
    detected = tuple(mount.connection for mount in wanted if mount.daemon_pid == pid)
    if not detected and len(wanted) > 1:
        raise Error(
            f"which mount process {pid} serves is unknown",
            "this kernel does not show it, and several file systems are mounted",
            f"fusetools record --mount PATH --pid {pid} -- …",
        )
    return detected or tuple(mount.connection for mount in wanted)


def check_probe_set(user: str, targets: Sequence[Target], readable: Collection[int]) -> None:
    """Check that a probe set of the user's own, which can read arguments and what they point to,
    probes only daemons whose memory the user may read.

    ``user``: the name of sudo's caller; ``readable``: the daemons that this user may read. Error:
    another daemon would be probed.
    """
    probed = [(target.mount, target.probe_set) for target in targets if target.groups]
    own = [mount.path for mount, _ in probed if mount.daemon_pid in readable]
    for mount, probe_set in probed:
        if mount.daemon_pid in readable:
            continue
        name = probe_set.name if probe_set else ""
        fix = "--fs NAME   # a probe set of fusetools"
        if own:
            fix = f"--mount {own[0]}   # a daemon of {user}\n{fix}"
        raise Error(
            f"the probe set {name} cannot be used on {mount.path}",
            f"it can read the memory of {mount.comm} (pid {mount.daemon_pid}), "
            f"which {user}, who invoked sudo, may not read",
            fix,
        )
