"""Events that ftrace records for us in an instance of its own, which a child of ours empties.

An event costs there a third of what it costs where perf writes it (docs/design/recording-cost.md).
The child also outlives us: where we are killed it switches the events off at once.

System calls are recorded in a second instance, whose events the kernel limits to some threads and
all that they start (set_event_pid, event-fork: Documentation/trace/events.rst; Linux 4.7). A filter
is asked only after an event is put together: 100 ns for each call of any process, 30 so. Where the
kernel cannot follow threads, the first instance records them by a filter.
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
FOLLOWING = "_calls"  # added to the name of an instance: the one that follows threads
FOLLOWED = "set_event_pid"
IDLE = "0"  # a CPU's idle thread makes no system calls
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
    """One that is made in tracefs (at ``root``), and the file that its events go to.

    ``following``: the second one, which follows threads; None: there is none.
    """

    def __init__(self, root: Path, name: str, output: Path) -> None:
        self.path = root / "instances" / name
        self.following: Path | None = None
        self.output = output
        self.buffers = 0  # bytes, of all CPUs
        self.lost = 0
        self.pid = 0  # of who empties it
        self._status: int | None = None  # its own, once it has ended
        self._control: socket.socket | None = None
        self._file = -1
        self._events: list[Event] = []
        self._statistics: list[Path] = []  # a file of each CPU

    def make(self, clock: str, buffer: int, limit: int, follow: bool) -> int:
        """Make the instance, off, and the child that will empty it. Return the child's pid.
        ``buffer``: bytes on each CPU; ``limit``: of the file; ``follow``: it should follow threads.
        Raise OSError if the kernel refuses."""
        _prepare(self.path, clock, buffer)
        if follow and (self.path / FOLLOWED).exists():
            self._make_following(clock, buffer)
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
                _collect(self._all, size, limit, self._file, theirs.detach())
            finally:
                os._exit(errno.EIO)
        theirs.close()
        return self.pid

    def _make_following(self, clock: str, buffer: int) -> None:
        following = self.path.with_name(self.path.name + FOLLOWING)
        try:
            _prepare(following, clock, buffer)
            write(following / "trace_options", "event-fork")
            write(following / FOLLOWED, IDLE)  # with no thread at all it would record everybody
        except OSError:
            with contextlib.suppress(OSError):
                following.rmdir()
        else:
            self.following = following

    @property
    def _all(self) -> list[Path]:
        return [self.path, self.following] if self.following else [self.path]

    def measured(
        self, action: Callable[[Callable[[bool], None]], T], whose: str, pids: Iterable[int]
    ) -> T | None:
        """Return what ``action`` returns. It gets a function that switches two events of each
        system call of some processes on and off, before anything else is recorded. They are the
        ``pids``, or those that the filter ``whose`` selects.

        The events are discarded. None: that cannot be.
        """
        tracepoints = [f"events/raw_syscalls/{name}" for name in ("sys_enter", "sys_exit")]
        if not self.following:
            return self._tried(action, self.path, tracepoints, whose)
        try:
            self.follow(pids)
        except OSError:
            return None
        return self._tried(action, self.following, tracepoints, "")

    def follow(self, threads: Iterable[int]) -> None:
        """Record system calls of these threads and all that they start, besides others. OSError."""
        if self.following and (numbers := " ".join(map(str, threads))):
            write(self.following / FOLLOWED, numbers)

    def misses_switches(self) -> bool:
        """Return whether a CPU's idle thread does not report to whom it gives the CPU: a kernel may
        not call the tracepoint there. A CPU that does not become idle counts as one."""
        action = self._cpu_without_switches
        return self._tried(action, self.path, [SWITCHES], "prev_pid == 0") is not False

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
        self,
        action: Callable[[Callable[[bool], None]], T],
        path: Path,
        tracepoints: list[str],
        whose: str,
    ) -> T | None:
        """Return what ``action`` answers, which is given how to switch these events of the instance
        at ``path`` on and off; they are thrown away. None: that cannot be."""

        def switch(on: bool) -> None:
            for place in tracepoints:
                write(path / place / "enable", "1" if on else "0")

        try:
            for place in tracepoints if whose else ():
                write(path / place / "filter", whose)
            self.resume()
            return action(switch)
        except OSError:
            return None
        finally:
            self.pause()
            with contextlib.suppress(OSError):
                switch(False)
                for place in tracepoints if whose else ():
                    write(path / place / "filter", "0")
            # Opened so, it is emptied (tracing_open() in kernel/trace/trace.c).
            os.close(os.open(path / "trace", os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC))

    def choose(self, events: Iterable[Event], threads: Threads = UNKNOWN) -> None:
        """Switch events on, too, each by its filter for these threads.

        Raise Error if the kernel refuses one.
        """
        for event in events:
            self._events.append(event)
            path, only = self.path, event.condition
            if self.following and event.whose:
                path, only = self.following, event.filter
            place = path / "events" / event.name.replace(":", "/", 1)
            try:
                if only:
                    write(place / "filter", threads.filled(only))
                write(place / "enable", "1")
            except OSError as error:
                why = error.strerror or str(error)
                if error.errno == NOT_SUPPORTED:
                    why = "its first instruction cannot be run apart"
                raise Error(f"ftrace cannot record {event.name}", why) from error

    def clear(self) -> None:
        """Switch all events off."""
        self._events = []
        for path in self._all:
            with contextlib.suppress(OSError):
                write(path / "events/enable", "0")

    def start(self) -> None:
        """Let the child empty the buffers from now on. Nothing is recorded until resume()."""
        assert self._control is not None
        self._statistics = [p for at in self._all for p in at.glob("per_cpu/cpu*/stats")]
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
        for path in self._all:
            with contextlib.suppress(OSError):
                write(path / "tracing_on", "0")

    def resume(self) -> None:
        for path in self._all:
            write(path / "tracing_on", "1")

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
        self.lost = sum(map(tracecmd.lost, self._all))
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


def _prepare(path: Path, clock: str, buffer: int) -> None:
    """Make an instance, off. OSError."""
    path.mkdir()
    write(path / "tracing_on", "0")
    write(path / "trace_clock", clock)
    write(path / "buffer_size_kb", str(buffer >> 10))
    # Names of threads come from perf: else the kernel would note them at each switch.
    write(path / "trace_options", "norecord-cmd")


def remove(path: Path, patience: float = 5.0) -> bool:
    """Switch the events of an instance, and of the second one beside it, off, and remove them.
    Return whether they are gone. They cannot be removed while somebody reads them, or where tracefs
    has been unmounted."""
    end = time.monotonic() + patience
    return _remove(path.with_name(path.name + FOLLOWING), end) and _remove(path, end)


def _remove(path: Path, end: float) -> bool:
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


def _collect(paths: list[Path], page: int, limit: int, output: int, control: int) -> None:
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
            remove(paths[0])
            os._exit(0)
        ended = native.ring_collect([str(path) for path in paths], page, limit, output, control)
    except OSError as error:
        os._exit(error.errno or errno.EIO)
    if ended == "alone":
        remove(paths[0])
    os._exit(0 if ended == "told" else errno.EFBIG)
