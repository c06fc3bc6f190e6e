"""A sweep's folder: the experiment and the results of each run.

    sweep.json                 the experiment, the host, and each point's figures
    sweep.csv                  a line for each run
    runs/002-bs=16k/3/         the third run of the third point of the grid:
        run.json               its figures
        output                 the command's output
        perf.data              its recording

A run is complete once its run.json exists, which is written last, by one rename. A killed sweep
repeats only the run that was in progress.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.files import by_descriptor, check_answers
from fusetools.names import LAYERS
from fusetools.output import Output, Owner, give, new_directory, new_file, open_directory
from fusetools.plan.experiment import Experiment

DEFINITION = "sweep.json"


TABLE = "sweep.csv"


MOST_ROUNDS = 1000


MOST_FIGURE = 1e24


MOST_BYTES = 64 << 20  # maximum size of a JSON file


_UNFINISHED = re.compile(r"\.sweep\.(json|csv)\.[0-9a-f]{8}")  # incomplete file of a killed sweep


@dataclass(frozen=True)
class Requests:
    """Requests of one operation in a run. Times in ns.

    ``layer``: "request", or "daemon" if requests could not be recorded; ``size``: mean bytes of
    data, None if unknown; ``buckets``: as in results.hist.Histogram; ``stages``: mean of each stage
    that the recording can tell, as in results.stages.Stage."""

    layer: str
    count: int
    p50: float | None
    p99: float | None
    mean: float | None
    size: float | None = None
    buckets: tuple[tuple[int, int, int], ...] = ()
    stages: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: object) -> Requests:
        """Read from JSON data. ValueError, TypeError or KeyError: it is invalid."""
        if not isinstance(data, dict):
            raise TypeError("the requests of an operation make no sense")
        rows = tuple((int(low), int(high), int(n)) for low, high, n in data["buckets"])
        stages = {str(name): ns for name, ns in dict(data.get("stages", {})).items()}
        new = cls(**{**data, "buckets": rows, "stages": stages})
        known = [n for n in (new.p50, new.p99, new.mean, new.size) if n is not None]
        _check([new.count, *known, *stages.values(), *(n for row in rows for n in row)])
        if new.layer not in LAYERS or any(row[1] > 1 << 64 for row in rows):
            raise ValueError("a histogram makes no sense")
        return new


@dataclass(frozen=True)
class Run:
    """One run of a point. Unknown figures are None.

    ``seconds``: elapsed time; ``user`` and ``system``: CPU seconds of the command and its children;
    ``switches``: their context switches. ``bytes``: bytes moved, from the command's output, or from
    its system calls if ``source`` is "kernel". ``bandwidth``: bytes per second. ``took``: seconds
    including all work before and after the command. ``operations`` and ``rate``: number of
    operations and operations per second, from the command's output. ``recorded``: False if only the
    time was measured; then ``cpu`` is the time that all CPUs of the machine were busy, in seconds.
    """

    round: int
    seconds: float
    user: float
    system: float
    switches: int
    bytes: int | None = None
    bandwidth: float | None = None
    source: str = ""
    took: float = 0.0
    lost: int = 0
    warnings: tuple[str, ...] = ()
    requests: Mapping[str, Requests] = field(default_factory=dict)
    operations: int | None = None
    rate: float | None = None
    recorded: bool = True
    cpu: float | None = None

    @classmethod
    def from_json(cls, data: object) -> Run:
        """Read from JSON data. ValueError, TypeError or KeyError: it is invalid."""
        if not isinstance(data, dict):
            raise TypeError("it is no run")
        operations = {str(k): Requests.from_json(v) for k, v in dict(data["requests"]).items()}
        data = {**data, "source": data.get("source", data.get("told", ""))}
        data.pop("told", None)  # name of "source" in older sweeps
        run = cls(**{**data, "warnings": tuple(map(str, data["warnings"])), "requests": operations})
        _check([run.seconds, run.user, run.system, run.switches, run.round, run.took, run.lost])
        amounts = (run.bytes, run.bandwidth, run.operations, run.rate, run.recorded, run.cpu)
        _check([n for n in amounts if n is not None])
        return run


def _check(numbers: Iterable[object]) -> None:
    if not all(isinstance(n, (int, float)) and 0 <= n < MOST_FIGURE for n in numbers):
        raise ValueError("a figure makes no sense")


def is_sweep(path: Path) -> bool:
    """Return whether the path is a sweep's folder. Raise Error if its file system does not
    answer."""
    check_answers(path)
    return (path / DEFINITION).is_file()


class Folder:
    """The folder of a sweep. ``runs``: finished runs by (point's index in the grid, round)."""

    def __init__(self, path: Path, experiment: Experiment, repeat: int) -> None:
        self.path = path
        self.experiment = experiment
        self.repeat = repeat
        self.points = experiment.points()
        self.left_out: dict[str, str] = {}  # reason by "name=value"
        self.runs: dict[tuple[int, int], Run] = {}
        self._rounds = 0  # last round of existing runs; may exceed `repeat`
        self._opened = -1
        self._owner: Owner | None = None

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open an existing sweep with its finished runs. Raise Error if it is no sweep, or is
        damaged."""
        data = _read(path / DEFINITION)
        try:
            if not isinstance(data, dict) or data["format"] != 1:
                raise ValueError("it was made by another version of fusetools")
            experiment = Experiment.from_json(data["experiment"]).checked()
            repeat = int(data["repeat"])
            if not 1 <= repeat <= MOST_ROUNDS:
                raise ValueError("repeat makes no sense")
            folder = cls(path, experiment, repeat)
            folder.left_out = {str(k): str(v) for k, v in data["left_out"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise Error(f"{path} is no sweep that can be read", _reason(error)) from error
        for index in range(len(folder.points)):
            for place in folder.place(index, 1).parent.glob("*/run.json"):
                if not place.parent.name.isdecimal():
                    continue
                try:
                    run = Run.from_json(_read(place))
                except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                    raise Error(f"{place} is damaged", _reason(error), f"rm {place}") from error
                if str(run.round) != place.parent.name or not 1 <= run.round <= MOST_ROUNDS:
                    raise Error(
                        f"{place} is damaged", "its round is not its folder's", f"rm {place}"
                    )
                folder.runs[index, run.round] = run
                folder._rounds = max(folder._rounds, run.round)
        return folder

    @classmethod
    def create(
        cls, path: Path, experiment: Experiment, repeat: int, owner: Owner | None = None
    ) -> Folder:
        """Create a sweep, or open the existing one of the same experiment with its runs.

        ``owner``: the user for whom root creates it. Raise Error if the path holds something else.
        """
        if is_sweep(path):
            there = cls.open(path)
            if there.experiment.to_json() != experiment.to_json():
                raise Error(
                    f"{path} holds another sweep",
                    f"it runs {' '.join(there.experiment.command)}",
                    "fusetools sweep -o ANOTHER …",
                )
            there.repeat = max(repeat, there.repeat)
            return there
        holds_more = path.is_dir() and any(not _UNFINISHED.fullmatch(n) for n in os.listdir(path))
        if path.exists() and (not path.is_dir() or holds_more):
            raise Error(f"{path} is there, and is no sweep", "", "fusetools sweep -o ANOTHER …")
        if not path.exists():
            with Output(os.path.abspath(path), owner) as output:
                os.mkdir(output.name, 0o755, dir_fd=output.directory)
        return cls(path, experiment, repeat)

    def lock(self, owner: Owner | None) -> None:
        """Lock the sweep for this process and set its owner.

        Error: another process runs it, or it cannot be written."""
        self._owner = owner
        new = os.fstat(self._at).st_uid == os.geteuid() and not os.listdir(self._at)
        if not new:
            self._check_owner(owner)
            Output(str(self.path / DEFINITION), owner).close()
        try:
            fcntl.flock(self._at, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Error(f"another sweep runs in {self.path}", "", "wait for it") from error
        for name in filter(_UNFINISHED.fullmatch, os.listdir(self._at)):
            os.unlink(name, dir_fd=self._at)

    def _check_owner(self, owner: Owner | None) -> None:
        """Check that no other user can change the command or its user. Error: one can."""
        ours = {os.geteuid(), owner.uid if owner else os.geteuid()}
        there = by_descriptor(self._at) / DEFINITION
        status = [os.fstat(self._at)]
        if there.exists():
            status.append(there.lstat())
        writable = 0o002 if os.geteuid() else 0o022
        good = all(entry.st_uid in ours and not entry.st_mode & writable for entry in status)
        # It was read by its path, which may have been replaced: compare it with the open folder's.
        if good and len(status) == 2:
            data = _read(there)
            good = isinstance(data, dict) and data.get("experiment") == self.experiment.to_json()
        if not good:
            why = "another user could write it: its command would run with your rights"
            fix = "fusetools sweep -o ANOTHER -- COMMAND"
            raise Error(f"the sweep {self.path} is not yours", why, fix)

    @property
    def _at(self) -> int:
        """Descriptor of the folder. All writes use it, never the path."""
        if self._opened < 0:
            try:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                self._opened = os.open(self.path, flags)
            except OSError as error:
                why = error.strerror or str(error)
                if self.path.is_symlink():
                    why = f"it is a symbolic link to {os.readlink(self.path)}"
                raise Error(f"cannot write in {self.path}", why) from error
        return self._opened

    def wanted(self, index: int) -> bool:
        """Return whether the point can be run here."""
        point = self.points[index]
        return not any(f"{name}={value}" in self.left_out for name, value in point.items())

    def to_do(self) -> list[tuple[int, int]]:
        """Return (point, round) of the missing runs, round by round."""
        return [
            (index, n)
            for n in range(1, self.repeat + 1)
            for index in range(len(self.points))
            if self.wanted(index) and (index, n) not in self.runs
        ]

    def place(self, index: int, n: int) -> Path:
        """Return the directory of a run."""
        label = self.experiment.label(self.points[index])
        name = re.sub(r"[^A-Za-z0-9=.,_+-]+", "_", label)[:80]
        return self.path / "runs" / f"{index:03}-{name}" / str(n)

    @contextlib.contextmanager
    def begin(self, index: int, n: int) -> Iterator[int]:
        """Yield the descriptor of a new directory for a run, of mode 0700 until its end."""
        names = self.place(index, n).relative_to(self.path).parts
        with contextlib.ExitStack() as stack:
            above = [self._at]
            for name in names[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=above[-1])
                also = self._owner.uid if self._owner else None
                above.append(open_directory(above[-1], name, also=also))
                stack.callback(os.close, above[-1])
                if self._owner:
                    os.fchown(above[-1], self._owner.uid, self._owner.gid)
            shutil.rmtree(by_descriptor(above[-1]) / names[-1], ignore_errors=True)
            place = new_directory(above[-1], names[-1])
            stack.callback(os.close, place)
            try:
                yield place
            finally:
                os.fchmod(place, 0o755)
                give(place, self._owner)

    def keep(self, index: int, place: int, run: Run) -> None:
        """Save the complete run."""
        write(place, "run.json", asdict(run))
        self.runs[index, run.round] = run

    def save(self, data: object, table: str) -> None:
        """Save the figures of all runs so far."""
        write(self._at, DEFINITION, data, self._owner)
        write_text(self._at, TABLE, table, self._owner)
        if self._owner:
            os.fchown(self._at, self._owner.uid, self._owner.gid)

    def of(self, index: int) -> list[Run]:
        """Return the point's runs by round."""
        rounds = range(1, max(self._rounds, self.repeat) + 1)
        return [self.runs[index, n] for n in rounds if (index, n) in self.runs]


def write(directory: int, name: str, data: object, owner: Owner | None = None) -> None:
    """Write JSON completely or not at all."""
    write_text(directory, name, json.dumps(data, indent=1, allow_nan=False) + "\n", owner)


def write_text(directory: int, name: str, text: str, owner: Owner | None = None) -> None:
    """Write text completely or not at all."""
    new = f".{name}.{os.urandom(4).hex()}"
    descriptor = new_file(directory, new, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
            if owner:
                os.fchown(descriptor, owner.uid, owner.gid)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(new, dir_fd=directory)
        raise


def _read(path: Path) -> object:
    try:
        # O_NONBLOCK: an open of a FIFO would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Error(f"{path} is damaged", "it is no file")
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise Error(f"{path} is too large")
        data: object = json.loads(text)
        return data
    except OSError as error:
        raise Error(f"cannot read {path}", error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise Error(f"{path} is damaged", "it is no JSON") from error


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
