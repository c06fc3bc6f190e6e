"""Files that a command writes for its user: refused before the work begins, or complete at its end.

fusetools may run as root in directories of other users. So it looks a path up once: it opens the
directory and uses this descriptor from then on. A new file is made with O_EXCL under a random name,
and then renamed, which follows no link.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

from fusetools.errors import Error
from fusetools.host.asuser import as_user
from fusetools.host.files import OPENED, answers, by_descriptor

PRINTED = "-"
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class Owner(NamedTuple):
    """The user for whom root writes a file."""

    uid: int
    gid: int
    groups: Sequence[int]
    name: str


class Output:
    """A file to write; a context manager. "-" is the standard output.

    ``owner``: the future owner of the file, who needs write permission. Error: it cannot be
    written.
    """

    def __init__(self, path: str, owner: Owner | None = None) -> None:
        self.path = path
        self.owner = owner
        self.printed = path == PRINTED
        self.directory = -1
        if self.printed:
            if sys.stdout is None:
                raise Error("cannot write to the standard output", "it is closed")
            return
        self.parent, self.name = os.path.split(os.path.abspath(path))
        if path.endswith("/") or not self.name:
            raise self._refused("it is a directory", "-o FILE")
        if "\0" in path:
            raise self._refused("a name cannot hold a NUL")
        # Root examines no file that its owner may not see: a message would reveal it.
        seen = self._seen_by(owner) if owner and os.geteuid() == 0 else None
        if not answers(self.parent):
            raise self._silent()
        try:
            self.directory = os.open(self.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._no_directory(error) from error
        try:
            if seen is not None and seen != _identity(self.directory):
                raise self._refused("somebody else replaced the directory")
            self._check()
        except BaseException:
            self.close()
            raise

    def _silent(self) -> Error:
        why = f"the file system of {self.parent} does not answer"
        return self._refused(why, "-o FILE on another file system")

    def _seen_by(self, owner: Owner) -> str:
        """Return the directory that the owner finds by that path. Raise Error if the owner may not
        write there."""
        answer = as_user(owner, partial(_look, self.parent), 10.0)
        if answer is None:
            raise self._silent()
        number, writable, identity = answer.split(" ", 2)
        if int(number) in (errno.EACCES, errno.EPERM):
            raise self._not_allowed(owner)
        if int(number):
            raise self._no_directory(OSError(int(number), os.strerror(int(number))))
        if not int(writable):
            raise self._not_allowed(owner)
        return identity

    def _not_allowed(self, owner: Owner) -> Error:
        why = f"{owner.name}, who invoked sudo, may not write there"
        return self._refused(why, "-o FILE in a directory of yours, or: --as-root")

    def _no_directory(self, error: OSError) -> Error:
        if error.errno == errno.ENOENT:
            fix = f"mkdir -p {shlex.quote(self.parent)}"
            return self._refused(f"there is no directory {self.parent}", fix)
        return self._refused(f"{self.parent}: {error.strerror}")

    def _refused(self, why: str, fix: str = "") -> Error:
        return Error(f"cannot write {self.path}", why, fix)

    def check_old(self) -> None:
        """Check that the existing file can be renamed to FILE.old. Raise Error if it cannot."""
        old = self.name + ".old"
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(old, dir_fd=self.directory, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):
                kind = _KINDS.get(stat.S_IFMT(mode), "no file")
                why = f"{self.path}.old, where an earlier one is kept, is {kind}"
                raise self._refused(why, "-o FILE")

    def _check(self) -> None:
        there = self._there()
        if there is not None and not stat.S_ISREG(there.st_mode):
            raise self._no_file(there.st_mode)
        try:
            descriptor, name = self._new()
            os.close(descriptor)
            os.unlink(name, dir_fd=self.directory)
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error
        disk = os.fstatvfs(self.directory)
        if disk.f_blocks and not disk.f_bfree:
            raise self._refused("No space left on device")
        self._check_owner(there)

    def _no_file(self, mode: int) -> Error:
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        fix = "-o FILE"
        if stat.S_ISLNK(mode):
            target = os.readlink(self.name, dir_fd=self.directory)
            kind += f" to {target}"
            fix = f"-o {shlex.quote(os.path.join(self.parent, target))}"
        if self.path.startswith(OPENED):
            fix = "-o -"
        return self._refused(f"it is {kind}", fix)

    def _check_owner(self, there: os.stat_result | None) -> None:
        """Refuse a file that root could write but the owner could not."""
        if self.owner is None or os.geteuid() != 0:
            return
        parent = os.fstat(self.directory)
        sticky = parent.st_mode & stat.S_ISVTX
        if sticky and there and self.owner.uid not in (there.st_uid, parent.st_uid):
            raise self._not_allowed(self.owner)

    def _there(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error

    def _new(self) -> tuple[int, str]:
        name = f".{self.name[:200]}.{os.urandom(4).hex()}"
        return os.open(name, _NEW | os.O_RDWR, 0o666, dir_fd=self.directory), name

    @property
    def stream(self) -> TextIO:
        """Stream for output to "-"."""
        return sys.stdout

    def beside(self, name: str) -> Output:
        """Return an output of another name in the same directory, even if that was renamed."""
        other = copy.copy(self)
        other.name, other.path = name, os.path.join(os.path.dirname(self.path), name)
        other.directory = os.dup(self.directory)
        return other

    @property
    def device(self) -> int:
        """Device number of the file system (st_dev)."""
        return os.fstat(self.directory).st_dev

    @property
    def folder(self) -> Path:
        """Path to the directory by its descriptor: valid after a rename, in this process only."""
        return by_descriptor(self.directory)

    @contextlib.contextmanager
    def part(self) -> Iterator[int]:
        """Yield the descriptor of a new file, which replaces the target when the block ends.

        An error removes the new file."""
        descriptor, name = self._new()
        try:
            yield descriptor
            there = self._there()
            if there is not None and stat.S_ISREG(there.st_mode):
                os.fchmod(descriptor, stat.S_IMODE(there.st_mode) & 0o777)
                if os.geteuid() == 0:
                    os.fchown(descriptor, there.st_uid, there.st_gid)
            os.rename(name, self.name, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.directory)
            if isinstance(error, BrokenPipeError):
                raise
            raise self._refused(error.strerror or str(error)) from error
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.directory)
            raise
        finally:
            os.close(descriptor)

    def write(self, text: str | bytes | Iterable[str]) -> None:
        """Write the whole content, in parts if it is long. Raise Error if it cannot be written."""
        if isinstance(text, bytes):
            with self.part() as descriptor, open(descriptor, "wb", closefd=False) as binary:
                binary.write(text)
            return
        parts = [text] if isinstance(text, str) else text
        with self.part() as descriptor, open(descriptor, "w", -1, "utf-8", closefd=False) as to:
            try:
                to.writelines(parts)
            except ValueError as error:
                raise self._refused(str(error)) from error

    def remove(self) -> None:
        """Remove the target, if there is one."""
        with contextlib.suppress(OSError):
            os.unlink(self.name, dir_fd=self.directory)

    def size(self) -> int:
        """Return the size of the written file in bytes, 0 if there is none."""
        there = self._there()
        return 0 if there is None else there.st_size

    def take(self, directory: int, name: str, keep: bool = False) -> None:
        """Replace the target with a file of ``directory``, which must belong to this user.

        ``keep``: rename an existing target to FILE.old. OSError: it failed.
        """
        if keep and self._there() is not None:
            old = self.name + ".old"
            os.rename(self.name, old, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        os.rename(name, self.name, src_dir_fd=directory, dst_dir_fd=self.directory)

    def close(self) -> None:
        if self.directory >= 0:
            os.close(self.directory)
            self.directory = -1

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _look(directory: str) -> str:
    """errno, whether the directory can be written, and which it is."""
    try:
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fchdir(descriptor)
    except OSError as error:
        return f"{error.errno} 0 "
    return f"0 {int(os.access('.', os.W_OK | os.X_OK))} {_identity(descriptor)}"


def _identity(descriptor: int) -> str:
    status = os.fstat(descriptor)
    return f"{status.st_dev} {status.st_ino}"


def new_directory(parent: int, name: str) -> int:
    """Make a directory of mode 0700 and open it. OSError: it cannot be made, or was replaced."""
    os.mkdir(name, 0o700, dir_fd=parent)
    return open_directory(parent, name, new=True)


def open_directory(parent: int, name: str, new: bool = False, also: int | None = None) -> int:
    """Open a directory of this user, or of the user ``also``. PermissionError: it is another's.

    ``new``: it was just made, so it must be empty and of mode 0700."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent)
    status = os.fstat(descriptor)
    ours = status.st_uid in (os.geteuid(), also)
    if new:
        ours = ours and status.st_mode & 0o777 == 0o700 and not os.listdir(descriptor)
    if not ours:
        os.close(descriptor)
        raise PermissionError(1, "somebody else replaced the directory", name)
    return descriptor


def give(descriptor: int, owner: Owner | None) -> None:
    """Change the owner of a private directory and its files. None: leave them unchanged."""
    if owner is None:
        return
    for name in os.listdir(descriptor):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=descriptor)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                os.fchown(file, owner.uid, owner.gid)
        finally:
            os.close(file)
    os.fchown(descriptor, owner.uid, owner.gid)


def new_file(parent: int, name: str, mode: int = 0o600) -> int:
    """Make a new file and open it for reading and writing."""
    return os.open(name, _NEW | os.O_RDWR, mode, dir_fd=parent)
