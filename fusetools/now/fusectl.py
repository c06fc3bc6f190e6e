"""What the kernel shows of FUSE connections (fs/fuse/control.c), without touching their mounts."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from fusetools.host.files import Files
from fusetools.host.mounts import reachable

# System calls of Linux 5.2 and later, the same everywhere.
FSOPEN, FSCONFIG, FSMOUNT = 430, 431, 432
FSCONFIG_CMD_CREATE = 6


@contextlib.contextmanager
def fusectl() -> Iterator[tuple[str, int | None]]:
    """(place, descriptor of) the directory of the FUSE connections.

    If fusectl is not mounted, a mount of it outside any namespace that ends with its descriptor
    (fsopen(2), Linux 5.2); (…, None) if neither is possible.
    """
    mounts = Files(Path("/")).read("/proc/self/mountinfo") or ""
    place = next((path for path, _ in reachable(mounts, "fusectl")), "")
    descriptors: list[int] = []
    try:
        if place:
            with contextlib.suppress(OSError):
                descriptors.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY))
        elif os.geteuid() == 0:
            libc = ctypes.CDLL(None, use_errno=True)
            context = libc.syscall(FSOPEN, b"fusectl", 1)
            if context >= 0:
                descriptors.append(context)
                if libc.syscall(FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0) == 0:
                    mounted = libc.syscall(FSMOUNT, context, 1, 0)
                    if mounted >= 0:
                        descriptors.append(mounted)
                        flags = os.O_RDONLY | os.O_DIRECTORY
                        descriptors.append(os.open(".", flags, dir_fd=mounted))
        wanted = 1 if place else 3
        yield place, descriptors[-1] if len(descriptors) == wanted else None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def counter(directory: int, connection: int, name: str) -> int | None:
    """A number that fusectl shows for a connection; None if it cannot be read."""
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
