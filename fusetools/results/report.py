"""Content of `fusetools report`: the commands' answers about recordings and sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, Union

from fusetools.errors import Error
from fusetools.results.compare import Compared
from fusetools.results.count import Counts
from fusetools.results.diff import Differences
from fusetools.results.errors import Errors
from fusetools.results.flame import Stacks
from fusetools.results.hist import Histograms
from fusetools.results.queue import Queue
from fusetools.results.slow import Slowest
from fusetools.results.stages import Stages
from fusetools.results.sweep import Sweep
from fusetools.results.why import Why
from fusetools.session import Session

T = TypeVar("T")


Answer = Union[T, Error]  # the error explains why there is no answer, and how to get one


@dataclass(frozen=True)
class Recorded:
    """Answers about a recording; ``stacks``: by kind of flame graph."""

    path: Path
    session: Session
    why: Why
    histograms: Histograms
    counts: Counts
    stages: Stages
    slowest: Slowest
    errors: Errors
    queue: Queue
    stacks: dict[str, Answer[Stacks]]


@dataclass(frozen=True)
class Report:
    """A report. ``compared``: None for a single recording or sweep; ``differences``: for two
    recordings, else None."""

    recordings: tuple[Recorded, ...]
    sweeps: tuple[Sweep, ...]
    compared: Answer[Compared] | None
    differences: Differences | None
