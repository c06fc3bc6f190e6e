"""One recording at a time, and a note of everything it makes, for whoever cleans up after it.

/run/fusetools/lock is held while a recording runs, and says by whom. /run/fusetools/state.json
lists exactly what it made, each thing before it is made: a recording killed by SIGKILL leaves that
note, and the next one, or `fusetools clean`, removes what stands there and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fusetools.errors import Error
from fusetools.host.files import Files
from fusetools.host.mounts import mounted
from fusetools.host.probe import tracefs_places
from fusetools.host.processes import comm, lock_holder, read_stat
from fusetools.record import cgroup, graceperiods, instance, tracecmd, tracefs
from fusetools.record.scratch import Note, reclaim

DIRECTORY = Path("/run/fusetools")


_EVENT = re.compile(r"fuse_(daemon|kernel):[A-Za-z0-9_]{1,63}")
_FOLDER = re.compile(r"perf\.[a-z0-9_]{8}")
_CGROUP = re.compile(r"/.*/fusetools-[0-9]{1,10}", re.DOTALL)
_SETTING = re.compile(r"[A-Za-z0-9_:-]{1,64}")
MOST = 4 << 20  # bytes of the note


@dataclass
class State:
    """What a recording has made, since ``since`` (clock ticks since the boot). ``processes``: (pid,
    start time in such ticks), each the first of a session of its own; ``folders``: names in the
    lock's directory; ``scratch``: where it is written; ``ftrace``: what function_graph's settings
    were before; ``instance``: the name of one of ftrace's; ``expedited``: grace periods are, and
    were not before.
    """

    tracefs: str = ""
    since: int = 0
    mounted: bool = False
    probes: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    scratch: list[Note] = field(default_factory=list)
    processes: list[tuple[int, int]] = field(default_factory=list)
    cgroup: str = ""
    ftrace: dict[str, str] = field(default_factory=dict)
    instance: str = ""
    expedited: bool = False

    @classmethod
    def from_json(cls, data: Any) -> State:
        """ValueError or TypeError where it lists anything that fusetools does not make."""
        state = cls(**data)
        state.processes = [(int(pid), int(start)) for pid, start in state.processes]
        state.scratch = [Note.from_json(note) for note in state.scratch]
        good = (
            state.tracefs in ("", tracefs.PLACE, *tracefs_places(Files(Path("/"))))
            and all(_EVENT.fullmatch(name) for name in state.probes)
            and all(_FOLDER.fullmatch(name) for name in state.folders)
            and all(1 < pid < 1 << 31 and 0 <= start < 1 << 63 for pid, start in state.processes)
            and (state.cgroup == "" or _is_cgroup(state.cgroup))
            and all(
                name in tracecmd.SETTINGS and _SETTING.fullmatch(value)
                for name, value in state.ftrace.items()
            )
            and (state.instance == "" or instance.NAME.fullmatch(state.instance) is not None)
            and 0 <= state.since < 1 << 63
            and isinstance(state.mounted, bool)
            and isinstance(state.expedited, bool)
        )
        if not good:
            raise ValueError("it lists what fusetools does not make")
        return state


def _is_cgroup(path: str) -> bool:
    places = mounted(Files(Path("/")), "cgroup", "cgroup2")
    below = any(path.startswith(place + "/") for place in places)
    return below and os.path.normpath(path) == path and _CGROUP.fullmatch(path) is not None


@dataclass(frozen=True)
class Removed:
    """What clean-up found, in words, and what it could not remove."""

    what: tuple[str, ...]
    left: tuple[str, ...]


class Lock:
    """Held by one recording; a context manager. ``waiting``: called once with who holds it, where
    another does; it is waited for then. Error: who holds it, where that is not given.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path = DIRECTORY,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        self.directory = directory
        self._file = directory / "state.json"
        self._new = directory / "state.new"
        try:
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(folder).st_uid != os.geteuid():
                    raise PermissionError(errno.EPERM, "it belongs to somebody else")
                os.fchmod(folder, 0o700)  # whoever can open the lock can hold it
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._descriptor = os.open("lock", flags, 0o600, dir_fd=folder)
                os.fchmod(self._descriptor, 0o600)
            finally:
                os.close(folder)
        except OSError as error:
            why = error.strerror or str(error)
            fix = "run as root (sudo fusetools …)" if os.geteuid() else f"rm -r {directory}"
            raise Error(f"cannot use {directory}", why, fix) from error
        try:
            self._take(waiting)
        except BaseException:
            os.close(self._descriptor)
            raise
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps([os.getpid(), *command]).encode(), 0)
        self._new.unlink(missing_ok=True)  # of one that was killed while it wrote that
        self.leftover = _read(self._file)
        self.state = State()

    def _take(self, waiting: Callable[[str], None] | None) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            refused = self._refused()
            if waiting is None:
                raise refused from error
            waiting(f"waiting for another recording: {refused.why}")
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # a signal ends that

    def _refused(self) -> Error:
        """Names who holds the lock, by the kernel's own word; it writes its command right after it
        got the lock."""
        files = Files(Path("/"))
        what, command = "another recording is running", ""
        holder = lock_holder(files, os.fstat(self._descriptor))
        for _ in range(20):
            with contextlib.suppress(ValueError, TypeError):
                pid, *words = json.loads(os.pread(self._descriptor, 1 << 20, 0))
                if pid == holder:
                    command = " ".join(words)
                    break
            time.sleep(0.01)
        fix = "wait for it (fusetools record --wait …)"
        if holder is None:
            place = self.directory / "lock"
            return Error(what, f"a process that is not seen here holds {place}", fix)
        why = f"pid {holder}: {command or comm(files, holder)}"
        if " --flight" in command:  # it never ends
            fix = "fusetools snap   (what happened last)"
        return Error(what, why, f"{fix}, or stop it: kill -INT {holder}")

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def write(self) -> None:
        """Puts the state on record; to be called before a thing is made."""
        self._new.write_text(json.dumps(asdict(self.state)))
        self._new.replace(self._file)  # in a directory that only root may enter

    def clean(self) -> Removed:
        """Removes what a killed recording left, and its note."""
        if self.leftover is None:
            return Removed((), ())
        removed = clean(self.leftover, self.directory)
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
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return State()
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return State()
        try:
            return State.from_json(json.loads(opened.read(MOST)))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return State()


def clean(state: State, directory: Path = DIRECTORY) -> Removed:
    """Removes everything that a state lists. What is gone already is no matter."""
    what: list[str] = []
    left: list[str] = []
    for pid, start in reversed(state.processes):
        if started(pid) == start:
            name = comm(Files(Path("/")), pid)
            _end(pid, start)
            what.append(f"process {pid} ({name})")
        for other in _session_of(pid, start):
            _end(other, started(other) or 0)
    in_tracefs = state.ftrace or state.probes or state.instance
    if in_tracefs and not Path(state.tracefs, "events").exists():
        left.append(f"what was made in {state.tracefs}, which is not mounted any more")
        return Removed(tuple(what), tuple(left))
    if state.ftrace and state.tracefs:
        changed = tracecmd.restore(Path(state.tracefs), state.ftrace)
        what += [f"ftrace's {name} as it was" for name in changed]
    if state.instance and state.tracefs:
        place = Path(state.tracefs, "instances", state.instance)
        if place.exists():
            (what if instance.remove(place, 20.0) else left).append(f"ftrace instance {place}")
    if state.probes and state.tracefs:
        fs = tracefs.Tracefs(state.tracefs, state.since)
        there = [name for name in state.probes if fs.has(name)]
        held = fs.remove(there, 20.0)  # a perf that has not been noted may still be leaving
        left += [f"probe {name} (in use)" for name in held]
        if len(there) > len(held):
            what.append(f"{len(there) - len(held)} probes")
    if state.cgroup and Path(state.cgroup).exists():
        (what if cgroup.remove(Path(state.cgroup)) else left).append(f"cgroup {state.cgroup}")
    for name in state.folders:
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
            (left if path.exists() else what).append(str(path))
    for note in state.scratch:
        text, done = reclaim(note)
        if text:
            (what if done else left).append(text)
    if state.expedited and graceperiods.expedite(False):
        what.append("the kernel's grace periods as they were")
    if state.mounted and not left:
        tracefs.unmount()
        what.append(f"mount of tracefs on {state.tracefs}")
    return Removed(tuple(what), tuple(left))


def started(pid: int) -> int | None:
    """A process's start time, which tells it from a later one of the same pid."""
    process = read_stat(Files(Path("/")), pid)
    return process.start if process and process.state != "Z" else None


def _session_of(pid: int, start: int) -> list[int]:
    """What is left of the session that ``pid`` began: trace-cmd has a process on each CPU."""
    if started(pid) not in (None, start):
        return []  # another process by now
    found = []
    files = Files(Path("/"))
    for name in files.list("/proc"):
        process = read_stat(files, int(name)) if name.isdecimal() else None
        if process and process.session == pid and process.start >= start and process.state != "Z":
            found.append(int(name))
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
