"""The slowest requests."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.request import Request
from fusetools.results.rows import Rows


@dataclass(frozen=True, repr=False)
class Slowest(Rows):
    """``guessed``: names were told by what callers asked for next, not by the answers.
    ``pathless``: where a path was asked for, how many requests were skipped, as their path
    is not known, or not whole; None: none was."""

    requests: tuple[Request, ...]
    guessed: bool
    facts: Facts
    pathless: int | None = None

    ROWS = "requests"
    JSON_HIDDEN = ("facts",)
