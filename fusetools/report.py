"""What a report shows: the answers of the commands, of recordings and of sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Union

from fusetools.compare import compare as differences
from fusetools.errors import Error
from fusetools.model import (
    Counts,
    Differences,
    Errors,
    Histograms,
    Queue,
    Session,
    Slowest,
    Stacks,
    Stages,
)
from fusetools.recording import Recording

if TYPE_CHECKING:
    from fusetools.measure.compared import Compared
    from fusetools.measure.sweep import Sweep

T = TypeVar("T")
Answer = Union[T, Error]  # the error says what is missing, and what would bring it

GRAPHS = ("off-cpu", "requests", "on-cpu")
SLOWEST = 20


@dataclass(frozen=True)
class Recorded:
    """A recording's answers; ``stacks`` by flame graph."""

    path: Path
    session: Session
    histograms: Histograms
    counts: Counts
    stages: Stages
    slowest: Slowest
    errors: Errors
    queue: Queue
    stacks: dict[str, Answer[Stacks]]


@dataclass(frozen=True)
class Report:
    """``compared``: None where there is one alone; ``differences``: of two recordings."""

    recordings: tuple[Recorded, ...]
    sweeps: tuple[Sweep, ...]
    compared: Answer[Compared] | None
    differences: Differences | None


def report(paths: Sequence[Path]) -> Report:
    """Of recordings, or folders of fusetools sweep, or both. Error: one cannot be read."""
    from fusetools.measure.compared import compare
    from fusetools.measure.folder import DEFINITION, Folder
    from fusetools.measure.sweep import figures

    folders = [path for path in paths if (path / DEFINITION).is_file()]
    files = [path for path in paths if path not in folders]
    sweeps = tuple(figures(Folder.open(path)) for path in folders)
    recordings = tuple(map(_recorded, files))
    alike = len(paths) > 1 and not (files and folders)
    two = recordings if len(recordings) == 2 else None
    return Report(
        recordings,
        sweeps,
        _answer(lambda: compare(paths)) if alike else None,
        differences(two[0].counts, two[1].counts) if two else None,
    )


def _recorded(path: Path) -> Recorded:
    recording = Recording(path)
    return Recorded(
        path=path,
        session=recording.session,
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
