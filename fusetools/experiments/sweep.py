"""Execution of an experiment's grid, round by round, and summary of its runs."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fusetools.answers.filters import Filters
from fusetools.answers.hist import hist
from fusetools.answers.sizes import sizes
from fusetools.answers.source import Source
from fusetools.answers.stages import stages
from fusetools.errors import Error
from fusetools.experiments.estimate import estimate
from fusetools.experiments.folder import Folder, Requests, Run
from fusetools.experiments.laws import Done, differing, laws, published
from fusetools.experiments.moved import MOST as MOST_OUTPUT
from fusetools.experiments.moved import moved as bytes_moved
from fusetools.experiments.moved import operations as operations_done
from fusetools.experiments.named import throughput_ratio
from fusetools.experiments.named import timed as timed_runs
from fusetools.experiments.table import runs_csv
from fusetools.host.files import Files, absolute, by_descriptor
from fusetools.host.mounts import of_own_namespace
from fusetools.host.processes import busy_seconds
from fusetools.output import Output, new_file
from fusetools.plan.experiment import Experiment, Point, fill
from fusetools.plan.options import Options, Workload
from fusetools.record import caches, session
from fusetools.record.preflight import owner
from fusetools.record.timed import check, timed
from fusetools.record.workload import User, caller
from fusetools.results.encode import encode
from fusetools.results.estimate import Estimate
from fusetools.results.sweep import OperationAt, PointFigures, Sweep

ALMOST_FULL = 1 << 16  # free bytes of a disk


LEAST = 1 << 20  # bytes of a run that moves data; loading of programs and libraries reads less


Progress = Callable[[int, int, str, "float | None"], None]


def the_mount(given: Sequence[str]) -> str:
    """Return the value of {mount}: the first given mount, or the only mount on this host.

    Error: it is ambiguous."""
    if given:
        return absolute(given[0])
    mounts = list(dict.fromkeys(mount.path for mount in of_own_namespace(Files(Path("/")))))
    if len(mounts) == 1:
        return mounts[0]
    why = f"mounted: {', '.join(mounts)}" if mounts else "no FUSE file system is mounted here"
    raise Error("{mount} is ambiguous", why, "fusetools sweep --mount PATH …")


def run(folder: Folder, arguments: Sequence[str], progress: Progress) -> None:
    """Do the runs that are missing in the folder.

    ``progress`` is called before each run and at the end, with the number of finished runs, of all
    runs, the next run, and the seconds left (None: unknown). Raise Error if a run failed;
    KeyboardInterrupt: a signal came. In both cases, finished runs are kept.
    """
    experiment = folder.experiment
    options = experiment.recording
    user = None if options.get("as_root") else caller(os.environ)
    folder.lock(owner(bool(options.get("as_root"))))
    try:
        if experiment.caches == "drop":
            caches.drop()
        if not folder.runs:
            folder.left_out = dict(_left_out(experiment, user))
        _save(folder)
        try:
            _all(folder, user, arguments, progress)
        except BaseException:
            with contextlib.suppress(OSError):  # report the first error
                _save(folder)
            raise
        _save(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(folder) from error
        raise


def _all(folder: Folder, user: User | None, arguments: Sequence[str], progress: Progress) -> None:
    to_do = _shuffled(folder)
    total = len(to_do) + len(folder.runs)
    for i, (index, n) in enumerate(to_do):
        at = f"{folder.experiment.label(folder.points[index])}, round {n}"
        progress(total - len(to_do) + i, total, at, _seconds_left(folder, to_do[i:]))
        waiting = partial(_show_waiting, progress, total - len(to_do) + i, total)
        try:
            _run_point(folder, index, n, user, arguments, waiting)
        except session.Interrupted as error:
            raise KeyboardInterrupt from error
        except Error as error:
            if _free(folder.path) < ALMOST_FULL:
                raise _full(folder) from error
            raise Error(f"{error.what} (at {at})", error.why, error.fix) from error
    progress(total, total, "", 0.0)


def _free(path: Path) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def _full(folder: Folder) -> Error:
    path = shlex.quote(str(folder.path))
    why = f"{len(folder.runs)} runs are done, and kept"
    return Error(f"the disk of {path} is full", why, f"make room, then: fusetools sweep {path}")


def _shuffled(folder: Folder) -> list[tuple[int, int]]:
    """Return the missing runs, with the points of each round in a random, reproducible order.

    So no point always follows the same other one."""
    place = {}
    for n in range(1, folder.repeat + 1):
        order = list(range(len(folder.points)))
        random.Random(n).shuffle(order)
        place.update({(index, n): i for i, index in enumerate(order)})
    return sorted(folder.to_do(), key=lambda item: (item[1], place[item]))


def _seconds_left(folder: Folder, to_do: Sequence[tuple[int, int]]) -> float | None:
    """Estimate the time of the missing runs, from runs of the same point, or else from all runs."""
    if not folder.runs:
        return None
    took: dict[int, list[float]] = {}
    for (index, _), run in folder.runs.items():
        took.setdefault(index, []).append(run.took)
    every = [seconds for point in took.values() for seconds in point]
    mean = sum(every) / len(every)
    return sum(sum(took[i]) / len(took[i]) if i in took else mean for i, _ in to_do)


def _left_out(experiment: Experiment, user: User | None) -> Iterator[tuple[str, str]]:
    """Yield the values whose test fails on this host, each with the reason."""
    first = experiment.points()[0]
    for value, test in experiment.only.items():
        words = fill(test, first)
        with Path(os.devnull).open("wb") as nothing:
            if timed(["sh", "-c", words], user, nothing.fileno()).exit_status:
                yield value, f"{words} fails"


def _show_waiting(progress: Progress, done: int, total: int, what: str) -> None:
    progress(done, total, what, None)


def _run_point(
    folder: Folder,
    index: int,
    n: int,
    user: User | None,
    arguments: Sequence[str],
    waiting: Callable[[str], None],
) -> None:
    """Run a point in its own directory, with the command's output in a file."""
    with (
        folder.begin(index, n) as place,
        os.fdopen(new_file(place, "output", 0o644), "wb") as output,
    ):
        log = output.fileno()
        begin = time.monotonic()
        experiment = folder.experiment
        command = experiment.words(folder.points[index])
        requests: Mapping[str, Requests] = {}
        busy = None
        files = Files(Path("/"))
        with _around(experiment, folder.points[index], user):
            if experiment.caches == "drop":
                caches.drop()
                caches.load(command)
            if recorded := experiment.records(folder.points[index], n):
                recording_ = str(by_descriptor(place) / "perf.data")
                options = Options(
                    Workload(command, log), output=recording_, wait=True, **experiment.recording
                )
                with Output(recording_) as there:
                    outcome = session.record(options, arguments, lambda *_: None, there, waiting)
                check(outcome, command, log)
                requests = _requests(recording_)
            else:
                before = busy_seconds(files)
                outcome = timed(command, user, log)
                after = busy_seconds(files)
                check(outcome, command, log)
                if before is not None and after is not None:
                    busy = after - before
        usage = outcome.usage
        assert usage is not None
        text = _end_of(log)
        moved, seconds = bytes_moved(text) or (None, None)
        operations, took = operations_done(text) or (None, None)
        source = "command" if moved is not None else ""
        if moved is None and usage.read_bytes is not None and usage.written_bytes is not None:
            whole = max(usage.read_bytes, usage.written_bytes)
            moved, source = (whole, "kernel") if whole >= LEAST else (None, "")
        folder.keep(
            index,
            place,
            Run(
                round=n,
                seconds=outcome.seconds,
                user=usage.user_seconds,
                system=usage.system_seconds,
                switches=usage.switches,
                bytes=moved,
                bandwidth=None if moved is None else moved / (seconds or outcome.seconds),
                source=source,
                took=time.monotonic() - begin,
                lost=outcome.lost,
                warnings=tuple(outcome.warnings),
                requests=requests,
                operations=operations,
                rate=operations / took if operations is not None and took else None,
                recorded=recorded,
                cpu=busy,
            ),
        )


@contextlib.contextmanager
def _around(experiment: Experiment, point: Point, user: User | None) -> Iterator[None]:
    """Run the experiment's commands before and after a run. Error: one failed."""
    quoted = {name: shlex.quote(value) for name, value in point.items()}

    def shell(text: str) -> None:
        if text:
            command = ("sh", "-c", fill(text, quoted))
            with tempfile.TemporaryFile() as output:
                check(timed(command, user, output.fileno()), command, output.fileno())

    try:
        shell(experiment.before)
        yield
    finally:
        shell(experiment.after)


def _requests(path: str) -> dict[str, Requests]:
    """Return requests by operation, most first; the daemon's calls if there are no requests."""
    requests: dict[str, Requests] = {}
    source = Source(path)
    histograms = hist(source, (), ("request", "daemon"), Filters(), False).histograms
    moved = sizes(source)
    means = _stages(source)
    for layer in ("request", "daemon"):
        for h in histograms:
            if h.layer == layer and h.count and h.operation and h.operation not in requests:
                times = (h.percentiles_ns.get("50"), h.percentiles_ns.get("99"), h.mean_ns)
                size = moved.get(h.operation)
                of = means.get(h.operation, {})
                requests[h.operation] = Requests(layer, h.count, *times, size, h.buckets, of)
    return dict(sorted(requests.items(), key=lambda item: -item[1].count))


def _stages(source: Source) -> dict[str, dict[str, float]]:
    """Return the mean of each stage in ns by operation, over its synchronous and asynchronous
    requests."""
    totals: dict[str, dict[str, float]] = {}
    timed_requests: dict[str, int] = {}
    for of in stages(source, (), "", Filters()).operations:
        timed_requests[of.operation] = timed_requests.get(of.operation, 0) + of.timed
        sums = totals.setdefault(of.operation, {})
        for stage in of.stages:
            sums[stage.name] = sums.get(stage.name, 0.0) + stage.total_ns
    return {
        name: {stage: total / timed_requests[name] for stage, total in sums.items()}
        for name, sums in totals.items()
        if timed_requests[name]
    }


def _end_of(log: int) -> str:
    size = os.fstat(log).st_size
    return os.pread(log, MOST_OUTPUT, max(size - MOST_OUTPUT, 0)).decode(errors="replace")


def _save(folder: Folder) -> None:
    """Save the figures of all runs so far."""
    result = figures(folder)
    data = {
        "format": 1,
        "experiment": folder.experiment.to_json(),
        "repeat": folder.repeat,
        "left_out": folder.left_out,
        "points": [encode(point) for point in result.points],
    }
    folder.save(data, runs_csv(folder))


def figures(folder: Folder) -> Sweep:
    """Return the figures of the finished runs."""
    runs = [run for _, run in sorted(folder.runs.items(), key=lambda item: item[0])]
    done = [(point, own) for i, point in enumerate(folder.points) if (own := folder.of(i))]
    relative = {
        i: _relative(folder.experiment, point, own, done) for i, (point, own) in enumerate(done)
    }
    return Sweep(
        path=folder.path,
        experiment=folder.experiment,
        repeat=folder.repeat,
        points=tuple(
            _figures(folder.experiment, point, own, relative[i])
            for i, (point, own) in enumerate(done)
        ),
        to_do=len(folder.to_do()),
        left_out=folder.left_out,
        lost=sum(run.lost for run in runs),
        warnings=tuple(dict.fromkeys(w for run in runs for w in run.warnings)),
        laws=tuple(laws(folder.experiment, done)),
        published=tuple(published(folder.experiment, done, relative)),
    )


def _relative(
    experiment: Experiment,
    point: Point,
    runs: Sequence[Run],
    done: Done,
) -> Estimate | None:
    """Return the throughput relative to the point that differs by the base's value alone."""
    base = experiment.relative
    if not base or base.is_base(point):
        return None
    _, of_base = differing(done, point, {base.param: base.to})
    return throughput_ratio(runs, of_base) if of_base else None


def _class(experiment: Experiment, relative: Estimate | None) -> str:
    if not experiment.relative or not relative:
        return ""
    ends = [experiment.relative.class_of(end) for end in (relative.low, relative.high)]
    return " to ".join(dict.fromkeys(ends))


def _figures(
    experiment: Experiment, point: Point, runs: Sequence[Run], relative: Estimate | None
) -> PointFigures:
    recorded = [run for run in runs if run.recorded]
    quiet = timed_runs(runs)  # not disturbed by a recording
    operations: dict[str, list[Requests]] = {}
    for run in recorded:
        for name, requests in run.requests.items():
            operations.setdefault(name, []).append(requests)
    return PointFigures(
        point=point,
        label=experiment.label(point),
        seconds=estimate([run.seconds for run in quiet]),
        user_seconds=estimate([run.user for run in quiet]),
        system_seconds=estimate([run.system for run in quiet]),
        switches=estimate([run.switches for run in quiet]),
        bytes=_known(run.bytes for run in quiet),
        bytes_per_second=_known(run.bandwidth for run in quiet),
        requests={
            name: OperationAt(
                rows[0].layer,
                # a run without such requests counts as 0
                estimate([*(r.count for r in rows), *[0] * (len(recorded) - len(rows))]),
                _known(r.p50 for r in rows),
                _known(r.p99 for r in rows),
                _known(r.mean for r in rows),
                _known(r.size for r in rows),
                {
                    stage: estimate([r.stages[stage] for r in rows if stage in r.stages])
                    for stage in dict.fromkeys(stage for r in rows for stage in r.stages)
                },
            )
            for name, rows in operations.items()
        },
        operations_per_second=_known(run.rate for run in quiet),
        cpu_seconds=_known(run.cpu for run in quiet),
        relative=relative,
        relative_class=_class(experiment, relative),
    )


def _known(values: Iterable[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return estimate(known) if known else None
