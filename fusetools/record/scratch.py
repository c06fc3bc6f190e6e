"""The directory that a recording is written in: beside its place, and of root's own.

The owner of the directory around it can rename it, and so put another one in its place. So it is
used by its descriptor alone; what a killed recording left is taken for it only if it is the very
directory that was noted.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from fusetools.errors import Error, merging
from fusetools.host.files import answers, by_descriptor
from fusetools.names import FTRACE, OF_TASKS
from fusetools.output import Output, new_directory, open_directory
from fusetools.record import kept

DATA, RING = "perf.data", "ring"  # what perf writes; what ftrace's instance recorded
TASKS = "perf.tasks"  # what perf writes of per-task events
PARTIAL = ".partial"  # behind the recording's name: what a killed one had
_NAME = re.compile(r"\.(.{1,200})\.[0-9a-f]{8}", re.DOTALL)


class Note(NamedTuple):
    """A scratch directory, noted before it is made: where it is to be, and then, once it is made,
    which it is. ``uid``, ``gid``: whom the recording is for."""

    path: str
    device: int = 0
    inode: int = 0
    uid: int = 0
    gid: int = 0

    @classmethod
    def from_json(cls, data: object) -> Note:
        """ValueError or TypeError: it is none."""
        if not isinstance(data, (list, tuple)):
            raise TypeError("no scratch directory")
        path, *numbers = data
        note = cls(path, *numbers)
        if not isinstance(path, str) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError("no scratch directory")
        parent, name = os.path.split(path)
        if (
            os.path.normpath(path) != path
            or not parent.startswith("/")
            or not _NAME.fullmatch(name)
        ):
            raise ValueError("no scratch directory of ours")
        return note


class Scratch:
    """A directory made beside a target."""

    def __init__(self, target: Output) -> None:
        self.target = target
        name = f".{target.name[:200]}.{os.urandom(4).hex()}"
        owner = target.owner
        uid, gid = (owner.uid, owner.gid) if owner else (0, 0)
        self.note = Note(os.path.join(target.parent, name), uid=uid, gid=gid)
        self.descriptor = -1

    def make(self) -> None:
        """To be called once the note is on record; it tells then which directory it is."""
        name = os.path.basename(self.note.path)
        try:
            self.descriptor = new_directory(self.target.directory, name)
        except OSError as error:
            what = f"cannot write in {self.target.parent}"
            raise Error(what, error.strerror or str(error)) from error
        status = os.fstat(self.descriptor)
        self.note = self.note._replace(device=status.st_dev, inode=status.st_ino)

    @property
    def path(self) -> Path:
        """Its name, whatever anybody renames."""
        return by_descriptor(self.descriptor)

    def remove(self) -> None:
        """Remove the directory and all that is in it."""
        if self.descriptor < 0:
            return
        _empty(self.descriptor)
        os.close(self.descriptor)
        self.descriptor = -1
        with contextlib.suppress(OSError):  # an empty one at most, whosever it is by now
            os.rmdir(os.path.basename(self.note.path), dir_fd=self.target.directory)


def _empty(descriptor: int) -> None:
    names: list[str] = []
    with contextlib.suppress(OSError):  # its file system may be gone
        names = os.listdir(descriptor)
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=descriptor)


def reclaim(note: Note, register: Path) -> tuple[str, bool]:
    """Remove what a killed recording left, but keep its data beside it, for root alone: nothing was
    merged. ``register``: where what is kept of users' recordings is noted.

    Return what was done, in words ("": nothing is there), and whether it succeeded.
    """
    parent, name = os.path.split(note.path)
    if not answers(parent):
        return f"{note.path} (its file system does not answer)", False
    try:
        above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return "", True
    try:
        return _reclaim(note, above, name, register)
    finally:
        os.close(above)


def _reclaim(note: Note, above: int, name: str, register: Path) -> tuple[str, bool]:
    try:
        directory = open_directory(above, name)
    except OSError:  # gone, or somebody put something else there: not ours
        return "", True
    try:
        status = os.fstat(directory)
        place = ""
        if (status.st_dev, status.st_ino) == (note.device, note.inode):
            place = _keep(note, above, directory, register)
            _empty(directory)
        elif note.inode:
            return "", True  # another one of root's
        os.rmdir(name, dir_fd=above)
    except OSError as error:
        return f"{note.path} ({error.strerror})", False
    finally:
        os.close(directory)
    return note.path + (f" (what was recorded is kept: {place})" if place else ""), True


def _keep(note: Note, above: int, directory: int, register: Path) -> str:
    """Give the data of perf and ftrace names beside the recording's. Return them in words, "" if
    there is none."""
    there = [name for name in (DATA, TASKS, RING) if _made_private(name, directory)]
    # Without a head in ftrace's file nothing had begun: all that perf has is its own beginning.
    if not there or (RING not in there and os.access(RING, os.F_OK, dir_fd=directory)):
        return ""
    parent, name = os.path.split(note.path)
    match = _NAME.fullmatch(name)
    if note.uid:
        kinds = {DATA: "perf", TASKS: "tasks", RING: "ring"}
        files = {kinds[name]: name for name in there}
        try:
            own = match[1] if match else DATA
            places = kept.keep(register, note.uid, parent, above, own, directory, files)
        except (kept.Refused, OSError) as error:
            return f"nothing: {error}"
        return f"for root alone, {' and '.join(places)}: {merging(places)}"
    wanted = (match[1] if match else DATA) + PARTIAL
    ends = {DATA: "", TASKS: OF_TASKS, RING: FTRACE}
    for number in range(100):
        free = wanted + (f".{number}" if number else "")
        names = [free + ends[name] for name in there]
        if any(os.access(name, os.F_OK, dir_fd=above, follow_symlinks=False) for name in names):
            continue
        try:
            for name, new in zip(there, names):
                _give(name, directory, new, above)
        except FileExistsError:  # just now
            continue
        places = [os.path.join(parent, new) for new in names]
        return places[0] if len(places) == 1 else f"{' and '.join(places)}: {merging(places)}"
    return ""


def _made_private(name: str, directory: int) -> bool:
    """Make a file readable by root alone. Return False if it is empty, or no file."""
    try:
        data = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return False
    try:
        status = os.fstat(data)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return False
        os.fchmod(data, 0o600)
    finally:
        os.close(data)
    return True


def _give(name: str, directory: int, new: str, above: int) -> None:
    """Give a file a new name in the directory above. Raise FileExistsError if the name is taken."""
    try:
        os.link(name, new, src_dir_fd=directory, dst_dir_fd=above, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        os.rename(name, new, src_dir_fd=directory, dst_dir_fd=above)
