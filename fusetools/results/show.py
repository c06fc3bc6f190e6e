"""Timeline of one request."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.request import Request
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class TimelineEvent:
    """Actions of the caller and the daemon at one time; "" for none.

    ``time_ns``: since the request's first mark."""

    time_ns: Ns
    caller: str
    daemon: str


@dataclass(frozen=True, repr=False)
class Shown(Rows):
    """A request and its timeline; ``guessed`` as in Slowest."""

    request: Request
    moments: tuple[TimelineEvent, ...]
    guessed: bool
    facts: Facts

    ROWS = "moments"
    JSON_HIDDEN = ("facts",)
