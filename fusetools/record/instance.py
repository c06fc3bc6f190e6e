"""Events that ftrace records for us in an instance of its own, which a child of ours empties.

An event costs there a third of what it costs where perf writes it (docs/design/recording-cost.md).
The child also outlives us: where we are killed it switches the events off at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from fusetools.core import native
from fusetools.errors import Error
from fusetools.host.files import end_children, keep_only
from fusetools.host.processes import until_ended
from fusetools.plan.events import Event
from fusetools.record import tracecmd
from fusetools.record.perf import UNKNOWN, Threads
from fusetools.record.program import run_in_time
from fusetools.record.tracecmd import RECORDED
from fusetools.record.tracefs import NOT_SUPPORTED

T = TypeVar("T")
NAME = re.compile(r"fusetools_[0-9a-f]{8}")
# All CPUs' buffers together, and one at most and at least. 50,000 requests a second fill some 15 MB
# of all of them; they are emptied 25 times in it.
BUFFERS, LARGEST, SMALLEST = 256 << 20, 16 << 20, 256 << 10
SWITCHES = "events/sched/sched_switch"
# To see a CPU's idle thread give it up: it is asleep so many times at most, so many seconds each.
SLEEPS, SLEEP = 5, 2e-4
_DATA = re.compile(r"field: char data;\toffset:(\d+);\tsize:(\d+);")


def new_name() -> str:
    return f"fusetools_{os.urandom(4).hex()}"


class Instance:
    """One that is made in tracefs (at ``root``), and the file that its events go to."""

    def __init__(self, root: Path, name: str, output: Path) -> None:
        self.path = root / "instances" / name
        self.output = output
        self.buffers = 0  # bytes, of all CPUs
        self.lost = 0
        self.pid = 0  # of who empties it
        self._status: int | None = None  # its own, once it has ended
        self._control: socket.socket | None = None
        self._file = -1
        self._events: list[Event] = []
        self._statistics: list[Path] = []  # a file of each CPU

    def make(self, clock: str, buffer: int, limit: int) -> int:
        """Make the instance, off, and the child that will empty it. Return the child's pid.
        ``buffer``: bytes on each CPU; ``limit``: of the file. Raise OSError if the kernel
        refuses."""
        self.path.mkdir()
        self._write("tracing_on", "0")
        self._write("trace_clock", clock)
        self._write("buffer_size_kb", str(buffer >> 10))
        # Names of threads come from perf: else the kernel would note them at each switch.
        self._write("trace_options", "norecord-cmd")
        data = _DATA.search((self.path / "events/header_page").read_text())
        if data is None:
            raise OSError(errno.EINVAL, "its pages are of an unknown layout")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self.output, flags, 0o600)
        self._control, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                size = int(data[1]) + int(data[2])
                _collect(self.path, size, limit, self._file, theirs.detach())
            finally:
                os._exit(errno.EIO)
        theirs.close()
        return self.pid

    def measured(self, action: Callable[[Callable[[bool], None]], T], whose: str) -> T | None:
        """Return what ``action`` returns. It gets a function that switches two events of each
        system call of some processes (a filter) on and off, before anything else is recorded.

        The events are discarded. None: that cannot be.
        """
        tracepoints = [f"events/raw_syscalls/{name}" for name in ("sys_enter", "sys_exit")]
        return self._tried(action, tracepoints, whose)

    def misses_switches(self) -> bool:
        """Return whether a CPU's idle thread does not report to whom it gives the CPU: a kernel may
        not call the tracepoint there. A CPU that does not become idle counts as one."""
        return self._tried(self._cpu_without_switches, [SWITCHES], "prev_pid == 0") is not False

    def _cpu_without_switches(self, switch: Callable[[bool], None]) -> bool:
        switch(True)
        allowed = os.sched_getaffinity(0)
        try:
            for cpu in sorted(allowed):
                os.sched_setaffinity(0, {cpu})
                statistics = self.path / f"per_cpu/cpu{cpu}/stats"
                for _ in range(SLEEPS):
                    time.sleep(SLEEP)
                    if tracecmd.counted(statistics, RECORDED):
                        break
                else:
                    return True
            return False
        finally:
            os.sched_setaffinity(0, allowed)

    def _tried(
        self, action: Callable[[Callable[[bool], None]], T], tracepoints: list[str], whose: str
    ) -> T | None:
        """Return what ``action`` answers, which is given how to switch these events on and off;
        they are thrown away. None: that cannot be."""

        def switch(on: bool) -> None:
            for place in tracepoints:
                self._write(f"{place}/enable", "1" if on else "0")

        try:
            for place in tracepoints:
                self._write(f"{place}/filter", whose)
            self.resume()
            return action(switch)
        except OSError:
            return None
        finally:
            self.pause()
            with contextlib.suppress(OSError):
                switch(False)
                for place in tracepoints:
                    self._write(f"{place}/filter", "0")
            # Opened so, it is emptied (tracing_open() in kernel/trace/trace.c).
            os.close(os.open(self.path / "trace", os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC))

    def choose(self, events: Iterable[Event], threads: Threads = UNKNOWN) -> None:
        """Switch events on, too, each by its filter for these threads.

        Raise Error if the kernel refuses one.
        """
        for event in events:
            self._events.append(event)
            place = f"events/{event.name.replace(':', '/', 1)}"
            try:
                if event.filter:
                    self._write(f"{place}/filter", threads.filled(event.filter))
                self._write(f"{place}/enable", "1")
            except OSError as error:
                why = error.strerror or str(error)
                if error.errno == NOT_SUPPORTED:
                    why = "its first instruction cannot be run apart"
                raise Error(f"ftrace cannot record {event.name}", why) from error

    def clear(self) -> None:
        """Switch all events off."""
        self._events = []
        with contextlib.suppress(OSError):
            self._write("events/enable", "0")

    def start(self) -> None:
        """Let the child empty the buffers from now on. Nothing is recorded until resume()."""
        assert self._control is not None
        self._statistics = list(self.path.glob("per_cpu/cpu*/stats"))
        events = self.path / "events"
        formats = [
            (system, (events / system / name / "format").read_text())
            for system, _, name in (event.name.partition(":") for event in self._events)
        ]
        here = os.uname()
        head = native.ring_head(
            (events / "header_page").read_text(),
            (events / "header_event").read_text(),
            formats,
            _selected((self.path / "trace_clock").read_text()),
            f"{here.sysname} {here.nodename} {here.release} {here.machine}",
            1 + max((int(path.name[3:]) for path in self.path.glob("per_cpu/cpu*")), default=0),
        )
        os.write(self._file, head)
        os.close(self._file)
        self._file = -1
        with contextlib.suppress(OSError):
            self._control.send(b"x")

    def pause(self) -> None:
        """Record nothing from now on."""
        with contextlib.suppress(OSError):
            self._write("tracing_on", "0")

    def resume(self) -> None:
        self._write("tracing_on", "1")

    @property
    def ended(self) -> bool:
        """True if the child has ended, by itself or by a signal."""
        if self.pid and self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def end(self) -> None:
        """Pause, and ask the child for what is left in the buffers."""
        self.pause()
        self.lost = tracecmd.lost(self.path)
        if self._control is not None and self._file >= 0:
            self._control.close()  # it was never told to begin
        elif self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(b"x")

    def stop(self, patience: float = 60.0) -> bool:
        """Wait for the child. Return whether the file is complete."""
        end = time.monotonic() + patience
        while self.pid and not self.ended and (left := end - time.monotonic()) > 0:
            until_ended(self.pid, left)
        if self.pid and not self.ended:  # it writes to a file system that hangs
            end_children([self.pid])
            self._status = signal.SIGKILL
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return self.whole

    @property
    def whole(self) -> bool:
        """True if the child has ended as it should."""
        return not self._status

    def complaint(self) -> str:
        """Return why the child ended by itself."""
        if self._status is None or os.WIFSIGNALED(self._status):
            return "what empties ftrace's buffers was killed"
        return os.strerror(os.WEXITSTATUS(self._status))

    def recorded(self) -> int:
        """Return the number of events so far, on all CPUs. This reads a file for each CPU, some 10
        us."""
        return sum(tracecmd.counted(path, RECORDED) for path in self._statistics)

    def written(self) -> int:
        """Return the bytes of the file."""
        try:
            return self.output.stat().st_size
        except OSError:
            return 0

    def _write(self, name: str, text: str) -> None:
        write(self.path / name, text)


def remove(path: Path, patience: float = 5.0) -> bool:
    """Switch an instance's events off, and remove it. Return whether it is gone. It cannot be
    removed while somebody reads it, or where tracefs has been unmounted."""
    end = time.monotonic() + patience
    while True:
        try:
            write(path / "tracing_on", "0")
            write(path / "events/enable", "0")
            path.rmdir()
        except FileNotFoundError:
            return path.parent.exists() and not path.exists()
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        else:
            return True


def write(path: Path, text: str) -> None:
    """Into a file of tracefs that is there. OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _selected(clocks: str) -> str:
    clock = re.search(r"\[(\S+)\]", clocks)
    return clock[1] if clock else ""


def _collect(path: Path, page: int, limit: int, output: int, control: int) -> None:
    """Empty the buffers until told to end, then exit with 0 or an errno. A child runs this.

    It closes all other descriptors: it would hold the lock, and keep readers of pipes waiting."""
    os.setsid()  # no signal of the terminal
    for handled in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(handled, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    run_in_time()
    keep_only(output, control)
    try:
        if not os.read(control, 1):  # until the file has its head
            remove(path)
            os._exit(0)
        ended = native.ring_collect(str(path), page, limit, output, control)
    except OSError as error:
        os._exit(error.errno or errno.EIO)
    if ended == "alone":
        remove(path)
    os._exit(0 if ended == "told" else errno.EFBIG)
