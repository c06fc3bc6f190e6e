"""Collection of the answers that `fusetools report` shows, about recordings and sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fusetools.answers.diff import diff
from fusetools.errors import Error
from fusetools.experiments.compare import compare
from fusetools.experiments.folder import Folder, is_sweep
from fusetools.experiments.sweep import figures
from fusetools.recording import Recording
from fusetools.results.flame import Stacks
from fusetools.results.report import Answer, Recorded, Report, T

GRAPHS = ("off-cpu", "requests", "on-cpu")
SLOWEST = 10


def report(paths: Sequence[Path]) -> Report:
    """Return a report on recordings, folders of fusetools sweep, or both.

    Error: one cannot be read."""
    folders = [path for path in paths if is_sweep(path)]
    files = [path for path in paths if path not in folders]
    sweeps = tuple(figures(Folder.open(path)) for path in folders)
    recordings = tuple(map(_recorded, files))
    alike = len(paths) > 1 and not (files and folders)
    two = recordings if len(recordings) == 2 else None
    return Report(
        recordings,
        sweeps,
        _answer(lambda: compare(paths)) if alike else None,
        diff(two[0].counts, two[1].counts) if two else None,
    )


def _recorded(path: Path) -> Recorded:
    recording = Recording(path)
    return Recorded(
        path=path,
        session=recording.session,
        why=recording.why(),
        histograms=recording.hist(),
        counts=recording.counts(),
        stages=recording.stages(),
        slowest=recording.slowest(most=SLOWEST),
        errors=recording.errors(),
        queue=recording.queue(),
        stacks={graph: _stacks(recording, graph) for graph in GRAPHS},
    )


def _stacks(recording: Recording, graph: str) -> Answer[Stacks]:
    return _answer(lambda: recording.stacks(graph))


def _answer(ask: Callable[[], T]) -> Answer[T]:
    try:
        return ask()
    except Error as error:
        return error
