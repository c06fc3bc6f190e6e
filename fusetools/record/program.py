"""A program that records, as long as it runs: perf or trace-cmd."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fusetools.host.files import tool_environment
from fusetools.host.processes import until_ended

KILLED = 10.0  # seconds to end after SIGKILL


def run_in_time() -> None:
    """Have this process run as soon as it has work: it empties buffers, which overflow while it
    waits for a CPU.

    A nice value is not enough. Every session is scheduled as a group of its own (sched(7),
    autogroup); and beside two threads that wake each other a process that moved to their CPU, as
    perf does to switch its events there, was not run for a second (Linux 6.18).
    """
    with contextlib.suppress(OSError):
        os.nice(-20)  # for where the next is refused (cgroups of real-time groups)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


class Program:
    """One of these programs.

    ``log``: where its messages go; ``noise``: beginnings of messages that are no complaint.
    """

    noise: tuple[str, ...] = ()
    again = math.inf  # seconds after which it is asked once more to end

    def __init__(self, log: Path) -> None:
        self._log = log
        self.stdout: int | None = None  # where what it writes goes; None: the log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], prepare: Callable[[], None], directory: Path) -> int:
        """Start it in a directory, in a session of its own. Return its pid. ``prepare``: runs in
        the child."""

        def begin() -> None:
            # A script's background jobs begin with it ignored, which a program may keep.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            prepare()
            run_in_time()

        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=log if self.stdout is None else self.stdout,
                stderr=log,
                cwd=directory,
                env=tool_environment(),
                start_new_session=True,
                preexec_fn=begin,
            )
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    @property
    def done(self) -> bool:
        """All that it has is written."""
        return self.ended

    def end(self, patience: float) -> bool:
        """Wait up to ``patience`` seconds for it to write its data and exit. Return whether it did
        so by itself."""
        good = not self.ended
        for number, seconds in (
            (signal.SIGINT, patience),
            (signal.SIGTERM, 10.0),
            (signal.SIGKILL, 10.0),
        ):
            if self.process is None or self.done:
                break
            good = good and number == signal.SIGINT
            end = time.monotonic() + seconds
            while not self.done and (left := end - time.monotonic()) > 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)  # also what a script of that name started
                self._until_done(min(left, self.again))
        return good

    def _until_done(self, seconds: float) -> None:
        """Wait until it is done or the time is over, or return earlier."""
        if self.process is not None:
            until_ended(self.process.pid, seconds)

    def let_go(self, seconds: float = 60.0) -> None:
        """Wait until it has ended, and so has closed its events."""
        end = time.monotonic() + seconds
        while self.process is not None and not self.ended:
            if (left := end - time.monotonic()) <= 0:
                self.kill()
                return
            until_ended(self.process.pid, left)

    def kill(self) -> None:
        """Kill it immediately and discard its output. One that hangs is left."""
        if self.process is not None and not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(KILLED)

    def complaint(self) -> str:
        """Return what it said when it failed, in one line; empty: nothing."""
        lines = self.said().splitlines()
        complaints = (line.strip().removeprefix("Error:").strip() for line in lines)
        return next((line for line in complaints if line and not line.startswith(self.noise)), "")

    def said(self) -> str:
        try:
            return self._log.read_text(errors="replace")
        except OSError:
            return ""
