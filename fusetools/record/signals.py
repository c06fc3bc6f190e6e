"""Signals while something is recorded: held back, and taken where the recording waits."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator

from fusetools.results.record import Outcome

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = (*ENDING, signal.SIGCHLD)
SI_KERNEL = 0x80  # a signal that the terminal sent to the whole process group


@contextlib.contextmanager
def held_signals(outcome: Outcome) -> Iterator[None]:
    """Signals wait until asked for; of what came late only that it came is kept: everything ends
    anyway."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        while (came := signal.sigtimedwait(SIGNALS, 0)) is not None:
            outcome.interrupted |= came.si_signo in ENDING
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """In perf, before it runs: it ends with us, even by SIGKILL, and takes signals again."""
    ctypes.CDLL(None).prctl(1, number, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)  # killed before that
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        os.nice(-20)  # on a busy machine the buffers filled while perf waited for a CPU
