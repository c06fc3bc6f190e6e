"""Limits of a mount that the kernel and the daemon agreed on. The mount itself is not touched."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from fusetools.host.files import Files
from fusetools.host.fusectl import counter, fusectl

CONNECTIONS = "/sys/fs/fuse/connections"

# max_background of an aborted connection: fuse_abort_conn() in fs/fuse/dev.c. Nobody can set more
# than 65,535.
_ABORTED = (1 << 32) - 1

# Limits by name, each with the command that changes it. {connection} and {device} are the mount's.
CHANGES = {
    "max_background": f"echo N > {CONNECTIONS}/{{connection}}/max_background",
    "congestion_threshold": f"echo N > {CONNECTIONS}/{{connection}}/congestion_threshold",
    "read_ahead_kb": "echo N > /sys/class/bdi/{device}/read_ahead_kb",
    "max_read": "mount it with -o max_read=BYTES",
    "max_pages_limit": "sysctl fs.fuse.max_pages_limit=N  # then mount",
    "request_timeout_s": "sysctl fs.fuse.default_request_timeout=SECONDS  # then mount",
}


def device(connection: int) -> str:
    """Return a connection's device number, as in mountinfo and in /sys/class/bdi."""
    return f"{connection >> 20}:{connection & 0xFFFFF}"


def change(name: str, connection: int, mounted: bool | None = None) -> str:
    """Return the command that changes a limit. ``mounted``: fusectl is, in its usual place; None:
    unknown."""
    command = CHANGES[name].format(connection=connection, device=device(connection))
    if mounted or CONNECTIONS not in command:
        return command
    mounting = f"mount -t fusectl fusectl {CONNECTIONS}"
    if mounted is None:
        return f"mountpoint -q {CONNECTIONS} || {mounting}; {command}"
    return f"{mounting} && {command}"


def unlimited(cgroup: str) -> str:
    """Return the command that removes a cgroup's CPU quota."""
    first = cgroup.removeprefix("/sys/fs/cgroup/").split("/")[0]
    old = "cpu" in first.split(",")  # version 1 has a hierarchy for each controller
    value, name = ("-1", "cpu.cfs_quota_us") if old else ("max", "cpu.max")
    return f"echo {value} > {shlex.quote(cgroup)}/{name}"


def limits(connections: Iterable[int], files: Files | None = None) -> dict[int, dict[str, int]]:
    """Return the known limits of each connection by name; none if it was aborted. max_read is 0 if
    the mount has no such option."""
    files = files or Files(Path("/"))
    options = _options(files)
    # Upper limits for all mounts: the kernel does not show what a daemon asked for at INIT
    pages = _number(files.read("/proc/sys/fs/fuse/max_pages_limit", quiet=True))
    timeout = request_timeout(files)
    found: dict[int, dict[str, int]] = {}
    with fusectl() as (_, directory):
        for connection in connections:
            own: dict[str, int | None] = {}
            if directory is not None:
                for name in ("max_background", "congestion_threshold"):
                    own[name] = counter(directory, connection, name)
            at = device(connection)
            if own.get("max_background") == _ABORTED:
                found[connection] = {}
                continue
            ahead = files.read(f"/sys/class/bdi/{at}/read_ahead_kb", quiet=True)
            own["read_ahead_kb"] = _number(ahead)
            if at in options:
                own["max_read"] = _number(options[at].get("max_read", "0"))
                own["max_pages_limit"] = pages
                own["request_timeout_s"] = timeout or None
            found[connection] = {name: n for name, n in own.items() if n is not None}
    return found


def request_timeout(files: Files) -> int:
    """Return the seconds after which the kernel aborts a new mount with an unanswered request; 0:
    never.

    See fs/fuse/inode.c, init_server_timeout() (Linux 6.15).
    """
    texts = (
        files.read(f"/proc/sys/fs/fuse/{name}_request_timeout", quiet=True)
        for name in ("default", "max")
    )
    limit = min(filter(None, map(_number, texts)), default=0)
    return max(limit, 15) if limit else 0


def _options(files: Files) -> dict[str, dict[str, str]]:
    """Return the file system's options of each mount, by device number."""
    found = {}
    for line in (files.read("/proc/self/mountinfo", quiet=True) or "").split("\n"):
        before, separator, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if separator and len(fields) > 5 and len(types) > 2:
            options = (option.partition("=")[::2] for option in types[2].split(","))
            found[fields[2]] = dict(options)
    return found


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isdecimal() and len(text) < 20 else None
