"""Work with the rights of the user who called sudo, done in a child process.

With its own rights, root would open files that the user may not open, and root's messages would
reveal their contents.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from fusetools.figures import binary
from fusetools.host.files import bounded, open_regular


class Rights(Protocol):
    """A user and the groups that the user belongs to."""

    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...
    @property
    def groups(self) -> Sequence[int]: ...


PATIENCE = 5.0  # timeout in seconds for a file system that a user named


def become(user: Rights) -> None:
    """Drop all rights but the user's, irrevocably."""
    os.setgroups(list(user.groups))
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def as_user(
    user: Rights | None, function: Callable[[], str], seconds: float = PATIENCE, most: int = 1 << 16
) -> str | None:
    """Return the result of ``function``, called with the user's rights (``user`` None: with our
    own).

    Return None if the function failed, exceeded the timeout, or returned more than ``most`` bytes.
    """

    def look() -> str:
        if user is not None and os.geteuid() == 0:
            become(user)
        return function()

    return bounded(look, seconds, most)


def exists(path: str, user: Rights | None) -> bool:
    """Return whether the user sees a file. Also return True if the file system does not answer."""
    return as_user(user, lambda: "yes" if os.path.exists(path) else "") != ""


def read_input(path: str, most: int, user: Rights | None) -> bytes:
    """Read a file that the user named.

    Raise OSError if the user cannot read the file, if it exceeds ``most`` bytes, or if it does not
    answer.
    """

    def look() -> str:
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                data = file.read(most + 1)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            number = getattr(error, "errno", None) or errno.EINVAL
            return f"{number} {getattr(error, 'strerror', None) or error}"
        return "0 \n" + data.decode("utf-8", "surrogateescape")

    answer = as_user(user, look, most=most + 4096)
    if answer is None:
        raise OSError(errno.EIO, "its file system does not answer", path)
    head, _, text = answer.partition("\n")
    number, _, why = head.partition(" ")
    if number != "0":
        raise OSError(int(number), why, path)
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {binary(most)}", path)
    return data


def may_read_memory(pid: int, user: Rights) -> bool:
    """Return whether the kernel would let the user read a process's memory.

    The kernel compares all user and group numbers, capabilities and namespaces, and refuses a
    program that was setuid (ptrace(2), access mode PTRACE_MODE_READ).
    """
    return as_user(user, partial(_open, f"/proc/{pid}/environ")) == "yes"


def _open(path: str) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return ""
    return "yes"
