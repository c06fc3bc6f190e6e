"""Processes of an ordinary user that make a host slow to examine: `crowd.py KIND COUNT [MORE]`.

It prints "ready" when all are running. SIGKILL to its process group, or the end of the process that
started it, ends them. The kinds are the functions of KINDS.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time

NOBODY = 65534
PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1
CLONE_VFORK, CLONE_NEWNS, CLONE_NEWUSER = 0x4000, 0x20000, 0x10000000
MS_BIND = 0x1000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
LIBC = ctypes.CDLL(None, use_errno=True)


def descriptors(count: int, size: str) -> None:
    """Start processes with many descriptors each.

    All refer to one open file: the system's limit of files does not restrict them.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    for number in range(16, int(size)):
        os.dup2(null, number)
    for _ in range(count):
        child()


def threads(count: int, path: str) -> None:
    """Start a process with many threads in an unusual wait.

    The last one looks up ``path``, if given.
    """
    threading.stack_size(64 << 10)
    for _ in range(count):
        threading.Thread(target=LIBC.pause, daemon=True).start()
    if path:
        threading.Thread(target=ask, args=[path], daemon=True).start()


def forks(count: int, _more: str) -> None:
    """Start processes that fork all the time."""
    for _ in range(count):
        if child(stay=False):
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            while True:
                with contextlib.suppress(OSError):
                    if os.fork() == 0:
                        os._exit(0)


def waiting(count: int, _more: str) -> None:
    """Start processes in state D, each of which waits for a child in vfork(2)."""
    number = SYS_CLONE[os.uname().machine]
    for _ in range(count):
        if child(stay=False):
            LIBC.syscall(number, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0)
            stay()  # the child, whose parent waits
    time.sleep(0.5)


def named(count: int, _more: str) -> None:
    """Start processes with invalid names."""
    names = (b"a) S 1 1 1", b"\xff\xfe\x1b[31m", b"\n) D (", b"fusetools", b"")
    for number in range(count):
        if child(stay=False):
            LIBC.prctl(PR_SET_NAME, names[number % len(names)])
            stay()


def namespaces(count: int, size: str) -> None:
    """Start processes with mount namespaces of their own, with many mounts each."""
    for _ in range(count):
        reader, writer = os.pipe()
        if child(stay=False):
            if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS):
                os._exit(1)
            for _ in range(int(size)):
                LIBC.mount(b"/tmp", b"/tmp", None, MS_BIND, None)
            os.write(writer, b"x")
            os.close(writer)
            stay()
        os.close(writer)
        if not os.read(reader, 1):
            sys.exit("an ordinary user cannot make mount namespaces here")
        os.close(reader)


def commands(count: int, _more: str) -> None:
    """Start processes with command lines of more than 1 MB."""
    for _ in range(count):
        if child(stay=False):
            os.execv("/bin/sleep", ["sleep", "1000", *["0" * 120_000] * 12])
    time.sleep(0.5)


def callers(count: int, path: str) -> None:
    """Start processes that look up ``path``."""
    for _ in range(count):
        if child(stay=False):
            ask(path)
            stay()
    time.sleep(0.5)


KINDS = {
    kind.__name__: kind
    for kind in (descriptors, threads, forks, waiting, named, namespaces, commands, callers)
}


def child(stay: bool = True) -> bool:
    """Fork. Return whether this is the child, which is to exit."""
    if os.fork():
        return False
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while stay:
        signal.pause()
    return True


def stay() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        signal.pause()


def ask(path: str) -> None:
    with contextlib.suppress(OSError):
        os.stat(path)


def main() -> None:
    kind, count, *more = sys.argv[1:]
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of the user cancels an earlier setting
    KINDS[kind](int(count), more[0] if more else "")
    print("ready", flush=True)
    stay()


if __name__ == "__main__":
    main()
