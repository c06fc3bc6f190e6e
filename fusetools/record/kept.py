"""Raw files that never become a user's: what perf and ftrace wrote, where it was not merged.

They hold copies of stacks and registers of other processes. So they stay root's, in a directory of
root's beside the recording's place, where they need no copy. The user who owns the directory around
it can rename it, but neither move it elsewhere nor remove it: the number of each user's is limited
by a note in /run/fusetools.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fusetools.host.files import answers
from fusetools.names import FTRACE, OF_TASKS
from fusetools.output import new_directory, open_directory

MOST = 2  # of each user
ENDING = ".unmerged"
NAMES = {
    "perf": "perf.data",
    "tasks": "perf.data" + OF_TASKS,
    "ring": "perf.data" + FTRACE,
    "graph": "trace.dat",
}
PATIENCE = 2.0  # seconds for the note of a user that another process writes


class Kept(NamedTuple):
    """A directory with raw files: its number, and the one around it."""

    parent: str
    device: int
    above: int
    inode: int = 0


class Refused(Exception):
    """Why nothing was kept."""


def keep(
    register: Path,
    uid: int,
    parent: str,
    above: int,
    name: str,
    source: int,
    files: Mapping[str, str],
) -> list[str]:
    """Move ``files`` (of NAMES -> name in ``source``) of a recording ``name`` for a user into a new
    directory beside its place. Return their paths. Older ones of that user are removed.

    ``parent``, ``above``: the directory around it; ``source``: the one that holds the files.
    Refused: they stay where they are.
    """
    with _noted(register / f"kept.{uid}") as notes:
        _make_room(notes)
        status = os.fstat(above)
        notes.append(Kept(parent, status.st_dev, status.st_ino))
        place, made = _new(above, name[:200] + ENDING)
        try:
            notes[-1] = notes[-1]._replace(inode=os.fstat(made).st_ino)
            paths = []
            for kind, new in NAMES.items():
                if kind in files:
                    os.rename(files[kind], new, src_dir_fd=source, dst_dir_fd=made)
                    os.chmod(new, 0o600, dir_fd=made)
                    paths.append(os.path.join(parent, place, new))
            return paths
        finally:
            os.close(made)


def left(register: Path) -> list[str]:
    """Return what is kept for root, of all users. Forget what cannot be found."""
    places: list[str] = []
    for path in sorted(register.glob("kept.*")):
        with contextlib.suppress(Refused, OSError), _noted(path) as notes:
            for note in tuple(notes):
                with contextlib.ExitStack() as opened:
                    above = _above(note, opened)
                    names = _names(above, note) if above is not None else []
                places += [os.path.join(note.parent, name) for name in names]
                if not names:
                    notes.remove(note)
    return places


def _new(above: int, wanted: str) -> tuple[str, int]:
    for number in range(100):
        name = wanted + (f".{number}" if number else "")
        with contextlib.suppress(FileExistsError):
            return name, new_directory(above, name)
    raise Refused(f"there are 100 directories like {wanted}")


def _make_room(notes: list[Kept]) -> None:
    """Remove the oldest until one more is allowed. Refused: they cannot be found."""
    for note in tuple(notes):
        if len(notes) < MOST:
            return
        if _removed(note):
            notes.remove(note)
    if len(notes) >= MOST:
        places = ", ".join(sorted({note.parent for note in notes}))
        raise Refused(f"earlier ones of this user cannot be found in {places}")


def _removed(note: Kept) -> bool:
    """Remove what was kept. Return whether it is gone; False: the directory around it is not where
    it was, or does not answer."""
    with contextlib.ExitStack() as opened:
        above = _above(note, opened)
        if above is None:
            return False
        try:
            for name in _names(above, note):
                place = open_directory(above, name)
                opened.callback(os.close, place)
                for file in os.listdir(place):
                    os.unlink(file, dir_fd=place)
                os.rmdir(name, dir_fd=above)
        except OSError:
            return False
    return True


def _above(note: Kept, opened: contextlib.ExitStack) -> int | None:
    """Return the directory around it. Return None if it was moved, or does not answer."""
    if not answers(note.parent):
        return None
    with contextlib.suppress(OSError):
        above = os.open(note.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, above)
        status = os.fstat(above)
        if (status.st_dev, status.st_ino) == (note.device, note.above):
            return above
    return None


def _names(above: int, note: Kept) -> list[str]:
    """Return the recording's present name: the owner of the directory around it may have renamed
    it."""
    with os.scandir(above) as entries:
        return [entry.name for entry in entries if entry.inode() == note.inode]


@contextlib.contextmanager
def _noted(path: Path) -> Iterator[list[Kept]]:
    """Provide the directories that are kept of a user, and note the changed list."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise Refused(f"{path} is in use") from error
                time.sleep(0.02)
        notes = []
        with contextlib.suppress(ValueError, TypeError):
            notes = [Kept(*row) for row in json.load(file)]
        try:
            yield notes
        finally:
            file.seek(0)
            file.truncate()
            json.dump(notes, file)
