"""The slowest requests."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.request import Request
from fusetools.results.rows import Rows


@dataclass(frozen=True, repr=False)
class Slowest(Rows):
    """The slowest requests, slowest first.

    ``guessed``: names are inferred from the callers' next requests, not from replies. ``pathless``:
    with a pattern for paths, number of requests skipped as their path is unknown or incomplete."""

    requests: tuple[Request, ...]
    guessed: bool
    facts: Facts
    pathless: int | None = None

    ROWS = "requests"
    JSON_HIDDEN = ("facts",)
