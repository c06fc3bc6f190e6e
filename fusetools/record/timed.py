"""A workload's run without a recording, timed as one with it."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Sequence

from fusetools.errors import Error
from fusetools.record.signals import SI_KERNEL, arrived, held_signals
from fusetools.record.workload import User, Workload
from fusetools.results.record import Outcome

MOST = 1 << 16  # bytes of a log that are looked at, its end
LAST = 200  # characters of a workload's command, and of what it said last


def timed(command: Sequence[str], user: User | None, log: int) -> Outcome:
    """Run it, with its output into the open file ``log``. Return an outcome without a recording.

    A signal goes to it, too, and the outcome notes it. Raise Error if it cannot run.
    """
    outcome = Outcome()
    with held_signals(outcome):
        workload = Workload(command, user, os.environ, log)
        try:
            begin = time.monotonic()
            workload.start()
            while not workload.poll():
                came = arrived(1.0)
                if came is None or came.si_signo == signal.SIGCHLD:
                    continue
                if came.si_code != SI_KERNEL:
                    workload.signal(signal.SIGKILL if outcome.interrupted else came.si_signo)
                outcome.interrupted = True
            outcome.seconds = time.monotonic() - begin
        finally:
            workload.abandon()
    outcome.exit_status = workload.exit_status or 0
    outcome.usage = workload.usage
    return outcome


def _failure(command: Sequence[str], status: int, log: int) -> Error:
    """That a workload failed, with the last line that it printed."""
    end = max(os.fstat(log).st_size - MOST, 0)
    lines = os.pread(log, MOST, end).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    how = f"signal {status - 128}" if status > 128 else f"exit status {status}"
    words = shlex.join(command)
    shown = words if len(words) <= LAST else f"{words[:LAST]}…"
    return Error(f"the workload failed with {how}: {shown}", last[-LAST:])


def check(outcome: Outcome, command: Sequence[str], log: int) -> None:
    """Raise Error if a workload or its recording failed, KeyboardInterrupt if a signal came."""
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.failed:
        raise Error("a run's recording is incomplete", outcome.warnings[-1])
    if outcome.exit_status:
        raise _failure(command, outcome.exit_status, log)
