"""The only place where something that root recorded becomes a user's.

The files of perf and ftrace hold copies of stacks, registers and strings of any process. The
merger makes the recording of them; it is checked here, in another process than the merger.
"""

from __future__ import annotations

import os
import stat

from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.files import by_descriptor
from fusetools.record.workload import User

WHAT = "the recording cannot be handed over"


def hand_over(directory: int, name: str, user: User | None) -> None:
    """Make a merged recording in a directory of root's private, and its user's. Raise Error if it
    is no merged recording, or holds memory of processes."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        os.fchmod(descriptor, 0o600)
        if user:
            _check(descriptor)
            give(descriptor, user)
    finally:
        os.close(descriptor)


def _check(descriptor: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise Error(WHAT, "it is no file of its own")
    path = str(by_descriptor(descriptor))
    try:
        of_memory = native.of_memory(path)
        merged = native.describe(path)["session"] is not None
    except native.CoreError as error:
        raise Error(WHAT, ": ".join(map(str, error.args))) from error
    if not merged:
        raise Error(WHAT, "it was not merged")
    if of_memory:
        raise Error(WHAT, f"it holds memory of processes, in samples of {of_memory[0]}")


def give(descriptor: int, user: User | None) -> None:
    """Make an open file its user's. It must hold nothing of other users' processes."""
    if user:
        os.fchown(descriptor, user.uid, user.gid)
