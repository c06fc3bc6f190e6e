"""The slowest requests."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts
from fusetools.results.request import Request
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class SlowCall:
    """A system call on a mount, and its time outside of requests (results/stages.py, MountCalls).

    ``start_ns``: after the recording's first event. ``duration_ns``: the whole call, which is
    ``in_requests_ns`` and the sum of ``outside_ns``. ``mount``: its path, the connection's number,
    or None if unknown. ``returned``: False: the call lasts at least until the recording's end.
    """

    syscall: str
    mount: str | int | None
    pid: int
    tid: int
    comm: str
    start_ns: Ns
    duration_ns: Ns
    in_requests_ns: Ns
    outside_ns: dict[str, Ns]
    returned: bool


@dataclass(frozen=True, repr=False)
class Slowest(Rows):
    """The slowest requests, slowest first.

    ``guessed``: names are inferred from the callers' next requests, not from replies. ``pathless``:
    with a pattern for paths, number of requests skipped as their path is unknown or incomplete.
    ``calls``: as many system calls on mounts, those with the most time outside of requests; none
    with a pattern for paths."""

    requests: tuple[Request, ...]
    guessed: bool
    facts: Facts
    pathless: int | None = None
    calls: tuple[SlowCall, ...] = ()

    ROWS = "requests"
    JSON_HIDDEN = ("facts",)
