"""One recording at a time, and a note of everything it makes, for whoever cleans up after it.

/run/fusetools/lock is held while a recording runs, and says by whom. /run/fusetools/state.json
lists exactly what it made, each thing before it is made: a recording killed by SIGKILL leaves that
note, and the next one, or `fusetools clean`, removes what stands there and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fusetools.errors import Error
from fusetools.record import cgroup, graceperiods, tracecmd, tracefs

DIRECTORY = Path("/run/fusetools")


@dataclass
class State:
    """What a recording has made. ``processes``: (pid, start time in clock ticks since boot), each
    the first of a session of its own; ``ftrace``: what function_graph's settings were before;
    ``expedited``: grace periods are, and were not before.
    """

    tracefs: str = ""
    mounted: bool = False
    probes: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    processes: list[tuple[int, int]] = field(default_factory=list)
    cgroup: str = ""
    ftrace: dict[str, str] = field(default_factory=dict)
    expedited: bool = False


@dataclass(frozen=True)
class Removed:
    """What clean-up found, in words, and what it could not remove."""

    what: tuple[str, ...]
    left: tuple[str, ...]


class Lock:
    """Held by one recording; a context manager."""

    def __init__(self, command: Sequence[str], directory: Path = DIRECTORY) -> None:
        self.directory = directory
        self._file = directory / "state.json"
        try:
            directory.mkdir(mode=0o755, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(directory / "lock", flags, 0o644)
        except OSError as error:
            why = error.strerror or str(error)
            raise Error(f"cannot use {directory}", why, "run as root (sudo fusetools …)") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._refused() from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps([os.getpid(), *command]).encode(), 0)
        self.leftover = _read(self._file)
        self.state = State()

    def _refused(self) -> Error:
        """Names who holds the lock; it writes that right after it got it."""
        pid, command = 0, "(unknown)"
        for _ in range(20):
            with contextlib.suppress(ValueError, TypeError):
                pid, *words = json.loads(os.pread(self._descriptor, 1 << 20, 0))
                command = " ".join(words)
                break
            time.sleep(0.01)
        os.close(self._descriptor)
        return Error(
            "another recording is running",
            f"pid {pid}: {command}",
            f"wait for it, or stop it: kill -INT {pid}",
        )

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def write(self) -> None:
        """Puts the state on record; to be called before a thing is made."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self.state)))
        new.replace(self._file)

    def clean(self) -> Removed:
        """Removes what a killed recording left, and its note."""
        if self.leftover is None:
            return Removed((), ())
        removed = clean(self.leftover)
        if not removed.left:
            self.leftover = None
            self.forget()
        return removed

    def forget(self) -> None:
        """Everything in the state is gone."""
        self._file.unlink(missing_ok=True)


def _read(file: Path) -> State | None:
    """The note; None where there is none. One that cannot be understood lists nothing."""
    try:
        data: Any = json.loads(file.read_text())
        state = State(**data)
        state.processes = [(int(pid), int(start)) for pid, start in state.processes]
        return state
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return State()


def clean(state: State) -> Removed:
    """Removes everything that a state lists. What is gone already is no matter."""
    what: list[str] = []
    left: list[str] = []
    for pid, start in reversed(state.processes):
        if started(pid) == start:
            name = _comm(pid)
            _end(pid, start)
            what.append(f"process {pid} ({name})")
        for other in _session_of(pid, start):
            _end(other, started(other) or 0)
    if state.ftrace and state.tracefs:
        changed = tracecmd.restore(Path(state.tracefs), state.ftrace)
        what += [f"ftrace's {name} as it was" for name in changed]
    if state.probes and state.tracefs:
        fs = tracefs.Tracefs(state.tracefs)
        there = [name for name in state.probes if fs.has(name)]
        held = fs.remove(there, 20.0)  # a perf that has not been noted may still be leaving
        left += [f"probe {name} (in use)" for name in held]
        if len(there) > len(held):
            what.append(f"{len(there) - len(held)} probes")
    if state.cgroup and Path(state.cgroup).exists():
        (what if cgroup.remove(Path(state.cgroup)) else left).append(f"cgroup {state.cgroup}")
    for name in state.directories:
        if Path(name).exists():
            shutil.rmtree(name, ignore_errors=True)
            (left if Path(name).exists() else what).append(name)
    if state.expedited and graceperiods.expedite(False):
        what.append("the kernel's grace periods as they were")
    if state.mounted and not left:
        tracefs.unmount()
        what.append(f"mount of tracefs on {state.tracefs}")
    return Removed(tuple(what), tuple(left))


def started(pid: int) -> int | None:
    """A process's start time, which tells it from a later one of the same pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if fields[0] != "Z" else None


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def _session_of(pid: int, start: int) -> list[int]:
    """What is left of the session that ``pid`` began: trace-cmd has a process on each CPU."""
    if started(pid) not in (None, start):
        return []  # another process by now
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            ours = int(fields[3]) == pid and int(fields[19]) >= start and fields[0] != "Z"
            if ours:
                found.append(int(path.parent.name))
    return found


def _end(pid: int, start: int) -> None:
    for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if started(pid) != start:
                return
            time.sleep(0.02)
