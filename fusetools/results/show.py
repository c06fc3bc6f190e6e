"""One request's story."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.request import Request
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class Moment:
    """``time_ns`` in ns since the request's first mark; what either side did then, or ""."""

    time_ns: Ns
    caller: str
    daemon: str


@dataclass(frozen=True, repr=False)
class Shown(Rows):
    """One request's story; ``guessed`` as in Slowest."""

    request: Request
    moments: tuple[Moment, ...]
    guessed: bool
    facts: Facts

    ROWS = "moments"
    JSON_HIDDEN = ("facts",)
