"""The kernel's view of FUSE connections (fs/fuse/control.c), without touching their mounts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from fusetools.host.files import Files, end_children, keep_only
from fusetools.host.mounts import reachable

# System calls of Linux 5.2 and later; the numbers are the same on all architectures.
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432
FSCONFIG_CMD_CREATE = 6
CLONE_NEWNS, MS_REC_PRIVATE = 0x20000, 0x4000 | 0x40000


@contextlib.contextmanager
def fusectl() -> Iterator[tuple[str, int | None]]:
    """Return (path, descriptor) of the directory of the FUSE connections.

    If fusectl is not mounted, mount it where nobody else sees it, until the descriptor is closed:
    outside of any namespace (fsopen(2), Linux 5.2), or in a child's namespace. Return (…, None) if
    that is impossible.
    """
    mounts = Files(Path("/")).read("/proc/self/mountinfo") or ""
    place = next((path for path, _ in reachable(mounts, "fusectl")), "")
    descriptors: list[int] = []
    try:
        if place:
            with contextlib.suppress(OSError):
                descriptors.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY))
        elif os.geteuid() == 0:
            descriptors = _outside() or _in_a_child()
        yield place, descriptors[-1] if descriptors else None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _outside() -> list[int]:
    """Return the descriptors of such a mount; the last one is that of its directory."""
    libc = ctypes.CDLL(None)
    context = libc.syscall(FSOPEN, b"fusectl", 1)
    if context < 0:
        return []
    if libc.syscall(FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0) == 0:
        mounted = libc.syscall(FSMOUNT, context, 1, 0)
        if mounted >= 0:
            flags = os.O_RDONLY | os.O_DIRECTORY
            return [context, mounted, os.open(".", flags, dir_fd=mounted)]
    os.close(context)
    return []


def _in_a_child() -> list[int]:
    """Return a directory's descriptor, sent by a child whose mount namespace ends with the
    descriptor."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            keep_only(theirs.fileno())
            libc = ctypes.CDLL(None)
            failed = (
                libc.unshare(CLONE_NEWNS)
                or libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None)
                or libc.mount(b"none", b"/proc", b"fusectl", 0, None)
            )
            if not failed:
                socket.send_fds(theirs, [b"."], [os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)])
        finally:
            os._exit(0)
    theirs.close()
    ours.settimeout(2.0)
    try:
        return socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)[1]
    except OSError:
        return []
    finally:
        ours.close()
        end_children([child])


def waiting(connections: Iterable[int]) -> dict[int, int]:
    """Return the number of requests in flight, by connection; without connections that fusectl does
    not show."""
    with fusectl() as (_, directory):
        if directory is None:
            return {}
        counts = {number: counter(directory, number, "waiting") for number in connections}
    return {number: count for number, count in counts.items() if count is not None}


def counter(directory: int, connection: int, name: str) -> int | None:
    """Return a number that fusectl shows for a connection; None if it cannot be read."""
    try:
        descriptor = os.open(f"{connection}/{name}", os.O_RDONLY, dir_fd=directory)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 64).decode("ascii", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return int(text) if text.isdecimal() else None
