"""every.py DIRECTORY: cause each FUSE request that a program can cause, on a writable directory.

It prints the operations that the kernel or the file system refused as unknown.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

RETRIEVE = ord("P") << 8 | 1  # samples/fs/passfs.cc
EXCHANGE = 2  # RENAME_EXCHANGE
AT_FDCWD = -100
BIRTH = 0x800  # STATX_BTIME

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def attempt(name: str, what: Callable[[], object]) -> None:
    """Call it; print its name if it is unsupported."""
    try:
        what()
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        print(name)


def files(top: Path) -> None:
    a, b = top / "a", top / "b"
    fd = os.open(a, os.O_RDWR | os.O_CREAT, 0o640)
    os.write(fd, bytes(8192))
    os.fsync(fd)
    fcntl.ioctl(fd, RETRIEVE)
    os.lseek(fd, 0, os.SEEK_DATA)
    os.posix_fallocate(fd, 0, 16384)
    os.pread(fd, 100, 12288)  # no cache holds it, with the writeback cache either
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(0)
    os.ftruncate(fd, 4096)
    os.fchmod(fd, 0o600)
    os.utime(a, ns=(1, 2))
    other = os.open(b, os.O_RDWR | os.O_CREAT)
    os.copy_file_range(fd, other, 4096, 0, 0)
    locks(fd, os.open(a, os.O_RDWR))
    os.close(other)
    os.close(fd)
    attempt("setxattr", lambda: os.setxattr(a, "user.x", b"1"))
    attempt("getxattr", lambda: os.getxattr(a, "user.x"))
    os.listxattr(a)
    attempt("removexattr", lambda: os.removexattr(a, "user.x"))
    os.rename(a, top / "c")
    call("renameat2", AT_FDCWD, bytes(top / "c"), AT_FDCWD, bytes(b), EXCHANGE)
    os.link(b, top / "d")
    attempt("tmpfile", lambda: os.close(os.open(top, os.O_RDWR | os.O_TMPFILE)))
    call("statx", AT_FDCWD, bytes(b), 0, BIRTH, ctypes.create_string_buffer(256))


def locks(fd: int, second: int) -> None:
    """Lock in one process; another one asks, and waits until a signal interrupts it."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(fd, fcntl.LOCK_UN)
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    child = os.fork()
    if child == 0:
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        fcntl.fcntl(second, fcntl.F_GETLK, wanted)

        def interrupted(*_: object) -> None:
            raise InterruptedError

        signal.signal(signal.SIGALRM, interrupted)
        # Again and again: the first signal may come before the wait.
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        with contextlib.suppress(InterruptedError):
            fcntl.lockf(second, fcntl.LOCK_EX)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(second)


def directories(top: Path) -> None:
    inside = top / "inside"
    inside.mkdir()
    (top / "link").symlink_to("inside")
    os.readlink(top / "link")
    os.mknod(inside / "fifo", 0o600 | 0o010000)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as unix:
        unix.bind(str(inside / "socket"))
    os.listdir(inside)
    fd = os.open(inside, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    for name in ("fifo", "socket"):
        (inside / name).unlink()
    inside.rmdir()
    os.statvfs(top)
    os.access(top, os.W_OK)


def main() -> None:
    top = Path(sys.argv[1])
    files(top)
    directories(top)


if __name__ == "__main__":
    main()
