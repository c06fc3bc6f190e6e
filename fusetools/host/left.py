"""Root's note about children of fusetools that stayed behind.

These children sleep until a file system answers; not even SIGKILL ends them. `fusetools stuck`
recognizes them by the note.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

PLACE = "/run/fusetools.left"  # a directory where only root can create files
MOST = 1 << 16  # limit in bytes


def note(pids: Collection[int], place: str = PLACE) -> None:
    """Add those of these processes that sleep in state D to the note. Only root does this."""
    if os.geteuid() != 0:
        return
    states = ((pid, *_state(pid)) for pid in pids)
    new = {(pid, start) for pid, state, start in states if state == "D"}
    new -= set(noted(place))  # also removes the note if its processes have ended
    if not new:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(place, flags, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            if _of_root(descriptor) and os.fstat(descriptor).st_size < MOST:
                file.write("".join(f"{pid} {start}\n" for pid, start in sorted(new)).encode())


def noted(place: str = PLACE) -> list[tuple[int, int]]:
    """Return (pid, start in clock ticks since boot) of those that have not ended.

    As root, remove the note once all its processes have ended.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(place, flags)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        if not _of_root(descriptor):
            return []
        lines = [line.split() for line in file.read(MOST).splitlines()]
    pairs = [(int(line[0]), int(line[1])) for line in lines if len(line) == 2 and _numbers(line)]
    alive = [(pid, start) for pid, start in pairs if _state(pid)[1] == start]
    if not alive and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.unlink(place)
    return alive


def _numbers(words: list[bytes]) -> bool:
    return all(word.isdigit() and len(word) < 20 for word in words)


def _state(pid: int) -> tuple[str, int]:
    """Return a process's state and start (proc_pid_stat(5)); ("", -1) if there is none."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return words[0].decode("ascii"), int(words[19])
    except (OSError, ValueError, IndexError):
        return "", -1


def _of_root(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    regular = stat.S_ISREG(status.st_mode)
    return regular and status.st_uid == 0 and not status.st_mode & 0o022
