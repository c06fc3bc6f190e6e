"""The locks of recordings, and notes of everything that they make, for clean-up.

/run/fusetools/lock is held while a recording runs: by all that can run beside each other, or by the
one that cannot. Each has a number of its own, N: /run/fusetools/N/lock says who has it, and
/run/fusetools/N/state.json lists exactly what it made, each thing before it is made. The first
numbers are root's; each user who invokes sudo has a share of the others (/run/fusetools/user.*).
A recording killed by SIGKILL leaves that note, and the next one, or `fusetools clean`, removes what
stands in it and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.files import Files
from fusetools.host.mounts import mounted
from fusetools.host.probe import tracefs_places
from fusetools.host.processes import comm, holding_lock, lock_holder, read_stat, started
from fusetools.record import by_script, cgroup, graceperiods, instance, tracecmd, tracefs
from fusetools.record.scratch import Note, reclaim

DIRECTORY = Path("/run/fusetools")
MOST_AT_ONCE = 8  # recordings, of root and of each user
ROOTS = MOST_AT_ONCE  # numbers below are root's
NUMBERS = 64
MOUNTED = "mounted"  # the note that tracefs was mounted for recordings
TRANSIENT = 1.0  # seconds for which another may hold the lock only to begin, or to end

_EVENT = re.compile(r"fuse_(daemon|kernel):[A-Za-z0-9_]{1,63}")
_FOLDER = re.compile(r"perf\.[a-z0-9_]{8}")
_CGROUP = re.compile(r"/.*/fusetools-[0-9]{1,10}", re.DOTALL)
_SETTING = re.compile(r"[A-Za-z0-9_:-]{1,64}")
MOST = 4 << 20  # bytes of the note
LONG = 160  # characters of another recording's command in a message


@dataclass
class State:
    """Everything that a recording has made, since ``since`` (clock ticks since the boot).

    ``processes``: (pid, start time in such ticks), each the first of a session of its own;
    ``folders``: names in the lock's directory; ``scratch``: where it is written; ``ftrace``:
    function_graph's settings before; ``instance``: the name of one of ftrace's; ``expedited``:
    grace periods are, and were not before.
    """

    tracefs: str = ""
    since: int = 0
    probes: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    scratch: list[Note] = field(default_factory=list)
    processes: list[tuple[int, int]] = field(default_factory=list)
    cgroup: str = ""
    ftrace: dict[str, str] = field(default_factory=dict)
    instance: str = ""
    expedited: bool = False

    @classmethod
    def from_json(cls, data: object) -> State:
        """ValueError or TypeError where it lists anything that fusetools does not make."""
        if not isinstance(data, dict):
            raise TypeError("it lists nothing")
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
    """The things that clean-up found, in words, and those that it could not remove."""

    what: tuple[str, ...]
    left: tuple[str, ...]


class Recordings:
    """All recordings of this host: those that run, and what killed ones left. A context manager. It
    needs none of their numbers: it works however many run."""

    def __init__(self, place: Path = DIRECTORY) -> None:
        self.place = self.directory = place
        self._descriptor = _open_lock(place)

    def __enter__(self) -> Recordings:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _places(self) -> list[Path]:
        """Return the directories of numbers that have been used."""
        names = [name for name in os.listdir(self.place) if name.isdecimal() and len(name) < 3]
        return [self.place / name for name in sorted(names, key=int) if int(name) < NUMBERS]

    def _others(self) -> list[tuple[int, Path]]:
        """Return (pid, directory) of each recording that runs beside this one."""
        others = []
        for path in self._places():
            with contextlib.suppress(OSError):
                holder = _holder(path / "lock")
                if holder is not None and path != self.directory:
                    others.append((holder, path))
        return others

    def beside(self) -> list[str]:
        """Return who records beside this one, in words."""
        script = by_script.running(self.place)
        return [
            *(_short(_words(pid, path)) for pid, path in self._others()),
            *([by_script.words(script)] if script else []),
        ]

    def theirs(self) -> set[int]:
        """Return the processes by which others record; each records its own events alone."""
        states = (_read(path / "state.json") for _, path in self._others())
        return {pid for state in states if state for pid, _ in state.processes}

    def clean(self) -> Removed:
        """Remove what killed recordings left, and their notes."""
        what: list[str] = []
        left: list[str] = []
        for path in self._places():
            with contextlib.ExitStack() as opened:
                if path != self.directory:
                    descriptor = _open_lock(path)
                    opened.callback(os.close, descriptor)
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except OSError:
                        continue  # it runs
                    (path / "state.new").unlink(missing_ok=True)
                note = _read(path / "state.json")
                if note is None:
                    continue
                removed = clean(note, path, self.theirs)
                what += removed.what
                left += removed.left
                if not removed.left:
                    (path / "state.json").unlink(missing_ok=True)
        if made := by_script.left(self.place):
            note = State(made.tracefs, 0, list(made.probes), ftrace=dict(made.ftrace))
            removed = clean(note, self.place, self.theirs)
            what += removed.what
            left += removed.left
            if not removed.left:
                what += by_script.forget(self.place, made)
        return Removed(tuple(what), tuple(left))

    def unmount(self) -> bool:
        """Undo mount(), unless others record. Nothing is done with the lock afterwards."""
        note = self.place / MOUNTED
        if not note.exists():
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False  # the last of them does it
        tracefs.unmount()
        note.unlink(missing_ok=True)
        return True


class Lock(Recordings):
    """Held by one recording; a context manager. Those that can run beside each other: each has a
    ``number``, and a ``directory`` of its own below ``place``. ``uid``: the user who invoked sudo;
    0: root, whose numbers are free whatever users do. ``waiting``: called once with who is in the
    way, where somebody is; they are waited for then. Error: who is in the way, where that is not
    given.
    """

    def __init__(
        self,
        command: Sequence[str],
        place: Path = DIRECTORY,
        waiting: Callable[[str], None] | None = None,
        uid: int = 0,
    ) -> None:
        super().__init__(place)
        self._waiting = waiting
        self._command = json.dumps([os.getpid(), *command]).encode()
        self.state = State()
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, self._descriptor)
            self._take(fcntl.LOCK_SH)
            self._wait_for_script()  # which has looked at the lock since it made its link, or will
            if uid:
                opened.callback(os.close, self._share(uid))
            self.number = self._numbered(range(ROOTS, NUMBERS) if uid else range(ROOTS))
            opened.callback(os.close, self._own)
            self.directory = place / str(self.number)
            self._file, self._new = self.directory / "state.json", self.directory / "state.new"
            self._new.unlink(missing_ok=True)  # of one that was killed while it wrote that
            self.leftover = _read(self._file)
            self._opened = opened.pop_all()

    def _take(self, how: int, fix: str = "") -> bool:
        """Take the lock. Return whether another process had to end first."""
        end = time.monotonic() + TRANSIENT
        waited = False
        while True:
            try:
                fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
                return waited
            except OSError as error:
                if time.monotonic() > end:
                    refused = self._refused(fix)
                    if self._waiting is None:
                        raise refused from error
                    self._waiting(f"waiting for another recording: {refused.why}")
                    fcntl.flock(self._descriptor, how)  # a signal ends that
                    return True
            waited = True
            time.sleep(0.02)

    def _wait_for_script(self) -> None:
        """Raise Error while a recording script runs, or wait for its end."""
        told = False
        while script := by_script.running(self.place):
            words = by_script.words(script)
            if self._waiting is None:
                raise Error(
                    "another recording is running",
                    words,
                    f"wait for it (fusetools record --wait …), or stop it: kill -INT {script}",
                )
            if not told:
                self._waiting(f"waiting for another recording: {words}")
            told = True
            time.sleep(0.2)

    def stay_alone(self, fix: str = "") -> bool:
        """From now on no other recording runs; whether one had to be waited for. Error: as of the
        lock; ``fix``: how to go on beside the others."""
        waited = self._take(fcntl.LOCK_EX, fix)
        self.number = 0
        return waited

    def _share(self, uid: int) -> int:
        """Take one of a user's recordings at once; its descriptor. Raise Error if there is none
        left."""
        for number in range(MOST_AT_ONCE):
            descriptor = _open_lock(self.place / f"user.{uid}.{number}")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except OSError:
                os.close(descriptor)
        raise self._refused()

    def _numbered(self, numbers: Iterable[int]) -> int:
        """Take the first free number. Raise Error if there is none."""
        for number in numbers:
            self._own = _open_lock(self.place / str(number))
            try:
                fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._own)
                continue
            os.ftruncate(self._own, 0)
            os.pwrite(self._own, self._command, 0)
            return number
        raise self._refused()

    def _refused(self, fix: str = "") -> Error:
        """Return the error that names the recording that runs."""
        what = "another recording is running"
        wait = "wait for it (fusetools record --wait …)"
        others = self._others()
        if not others:
            holder = lock_holder(Files(Path("/")), os.fstat(self._descriptor))
            if holder is None:
                place = self.place / "lock"
                return Error(what, f"a process that is not seen here holds {place}", fix or wait)
            others = [(holder, self.place)]
        names = [_words(pid, path) for pid, path in others]
        # A flight recorder never ends.
        flies = " --flight" in names[0]
        fix = fix or ("fusetools snap   # what happened last" if flies else wait)
        return Error(
            what, "; ".join(map(_short, names)), f"{fix}, or stop it: kill -INT {others[0][0]}"
        )

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._own, 0)
        self._opened.close()

    def write(self) -> None:
        """Write the state. Call this before a listed object is made."""
        self._new.write_text(json.dumps(asdict(self.state)))
        self._new.replace(self._file)  # in a directory that only root may enter

    def forget(self) -> None:
        """Everything in the state is gone."""
        self._file.unlink(missing_ok=True)

    def mount(self) -> None:
        """Mount tracefs, also for others that record meanwhile; noted before."""
        (self.place / MOUNTED).touch(mode=0o600)
        if not tracefs.mount() and not Path(tracefs.PLACE, "events").exists():
            (self.place / MOUNTED).unlink(missing_ok=True)


def _open_lock(folder: Path) -> int:
    """Return the descriptor of the lock, in a folder of root's alone. Raise Error if there can be
    none."""
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(opened).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to somebody else")
            os.fchmod(opened, 0o700)  # whoever can open the lock can hold it
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open("lock", flags, 0o600, dir_fd=opened)
            os.fchmod(descriptor, 0o600)
            return descriptor
        finally:
            os.close(opened)
    except OSError as error:
        why = error.strerror or str(error)
        if os.geteuid():
            fix = shlex.join(["sudo", "fusetools", *sys.argv[1:]])
            raise Error("needs root", f"{folder}: {why}", fix) from error
        raise Error(f"cannot use {folder}", why, f"rm -r {folder}") from error


def _holder(lock: Path) -> int | None:
    """Return the process that holds a lock. Where the one that took it has ended, that is a child
    which inherited it."""
    files = Files(Path("/"))
    holder = lock_holder(files, lock.stat())
    if holder is None or started(holder) is not None:
        return holder
    return next(iter(holding_lock(files, str(lock))), None)


def _words(pid: int, path: Path) -> str:
    """Name the holder of the lock in a folder, by the command that it writes into the lock."""
    files = Files(Path("/"))
    for _ in range(20):
        with contextlib.suppress(OSError, ValueError, TypeError):
            with (path / "lock").open("rb") as lock:
                writer, *words = json.loads(lock.read(1 << 20))
            if writer == pid:
                return f"pid {pid}: {' '.join(words)}"
            if writer == lock_holder(files, (path / "lock").stat()):  # it took the lock
                what = f"left behind by {' '.join(words)}, which has ended"
                return f"pid {pid} ({comm(files, pid)}), {what}"
        time.sleep(0.01)
    return f"pid {pid}: {comm(files, pid)}"


def _short(words: str) -> str:
    """Shorten a command, which may have thousands of words."""
    return words if len(words) <= LONG else f"{words[: LONG - 1]}…"


def _read(file: Path) -> State | None:
    """Return the note, None if there is none. A note that cannot be parsed lists nothing."""
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


def clean(
    state: State, directory: Path = DIRECTORY, theirs: Callable[[], set[int]] = set
) -> Removed:
    """Remove everything that a state lists, if it is still there. ``theirs``: the processes by
    which others record now."""
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
        fs = tracefs.Tracefs(state.tracefs, state.since, theirs)
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
        text, done = reclaim(note, directory.parent)
        if text:
            (what if done else left).append(text)
    if state.expedited and graceperiods.expedite(False):
        what.append("the kernel's grace periods as they were")
    return Removed(tuple(what), tuple(left))


def _session_of(pid: int, start: int) -> list[int]:
    """Return the rest of the session that ``pid`` began: trace-cmd has a process on each CPU."""
    if started(pid) not in (None, start):
        return []  # another process by now
    numbers = []
    files = Files(Path("/"))
    for name in files.list("/proc"):
        process = read_stat(files, int(name)) if name.isdecimal() else None
        if process and process.session == pid and process.start >= start and process.state != "Z":
            numbers.append(int(name))
    return numbers


def _end(pid: int, start: int) -> None:
    for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(OSError):
            os.kill(pid, number)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if started(pid) != start:
                return
            time.sleep(0.02)
