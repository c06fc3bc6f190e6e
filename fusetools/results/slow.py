"""The slowest requests."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.request import Request


@dataclass(frozen=True)
class Slowest:
    """``guessed``: names were told by what callers asked for next, not by the answers."""

    requests: tuple[Request, ...]
    guessed: bool
    facts: Facts
