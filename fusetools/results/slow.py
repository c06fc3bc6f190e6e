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

    def alike(self) -> list[list[Request]]:
        """Return the requests in groups, in the order of their slowest: the same operation in the
        same directory (of the same inode, where its path is unknown) for the same program, with the
        same outcome, slow in the same stage and system call."""
        groups: dict[object, list[Request]] = {}
        for r in self.requests:
            place = r.inode if r.path is None else r.path.rpartition("/")[0]
            stage = max(r.stages, key=lambda stage: stage.time_ns).stage if r.stages else ""
            call = r.meanwhile.syscalls[0].syscall if r.meanwhile and r.meanwhile.syscalls else ""
            outcome = r.fate, r.error, r.negative
            key = (r.mount, r.operation, place, r.comm, outcome, stage, call)
            groups.setdefault(key, []).append(r)
        return list(groups.values())

    def alike_calls(self) -> list[list[SlowCall]]:
        """Return the system calls in groups, in their order: the same call of the same program on
        the same mount, with the most time outside of requests in the same place."""
        groups: dict[object, list[SlowCall]] = {}
        for call in self.calls:
            place = max(call.outside_ns, key=lambda name: call.outside_ns[name], default="")
            key = (call.mount, call.syscall, call.comm, call.returned, place)
            groups.setdefault(key, []).append(call)
        return list(groups.values())
