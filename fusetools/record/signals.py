"""Signals while something is recorded: held back, and taken where the recording waits."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusetools.results.record import Outcome

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = (*ENDING, signal.SIGCHLD)
SI_KERNEL = 0x80  # a signal that the terminal sent to the whole process group


def arrived(seconds: float) -> signal.struct_siginfo | None:
    """Return the next of SIGNALS, which are held back; None if none came in that time."""
    if seconds > 0:
        # Not by sigtimedwait(): where a process is stopped (SIGSTOP) until the time is over,
        # CPython tells it of a signal that never came (Modules/signalmodule.c).
        poll = select.poll()
        poll.register(_descriptor())
        poll.poll(1000 * seconds)
    return signal.sigtimedwait(SIGNALS, 0)


@functools.cache
def _descriptor() -> int:
    """Readable while one of SIGNALS is pending (signalfd(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()  # sigset_t
    libc.sigemptyset(mask)
    for number in SIGNALS:
        libc.sigaddset(mask, int(number))
    descriptor: int = libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return descriptor


@contextlib.contextmanager
def held_signals(outcome: Outcome) -> Iterator[None]:
    """Hold signals back until arrived() asks for them. Late ones are only noted, not passed on:
    everything ends anyway."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        while (came := arrived(0)) is not None:
            outcome.interrupted |= came.si_signo in ENDING
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with(parent: int, number: int) -> None:
    """Let a signal end this child when its parent ends, even by SIGKILL."""
    ctypes.CDLL(None).prctl(1, number, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)  # killed before that


def with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Have a child end with its parent, even by SIGKILL, and take signals again. Runs in the child
    before it runs a program."""
    end_with(parent, number)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        os.nice(-20)  # as somebody waits for it
