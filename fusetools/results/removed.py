"""The filters that removed all requests from an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Others(NamedTuple):
    """Requests of another mount, caller or operation, by its name; "": not known."""

    name: str
    requests: int


@dataclass(frozen=True)
class Removed:
    """The requests that there are without one filter.

    ``filter``: "mount", "comm", "pid", "time", "operation", "duration" or "path"; ``wanted``: its
    values. ``requests``: their number without it; ``others``: the most frequent of their values, if
    these are names. ``alone``: the other filters were applied; else none of them was."""

    filter: str
    wanted: tuple[str, ...]
    requests: int
    others: tuple[Others, ...]
    alone: bool
