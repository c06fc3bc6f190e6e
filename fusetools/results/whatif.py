"""Replays of a recording's requests with other limits."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.reasons import Reason
from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Ns


@dataclass(frozen=True)
class OperationReplay:
    """Time that callers waited for one operation, in the recording and with the change."""

    operation: str
    requests: int
    recorded_ns: Ns
    waited_ns: Ns


@dataclass(frozen=True)
class MountReplay:
    """One mount's requests with the change.

    ``threads``: number of daemon threads that served; ``callers``: number of threads that waited.
    ``left_out``: number of requests that were not replayed, as it is unknown when a thread had
    them. ``saved``: number of requests that the changed timeouts save. ``recorded_ns``: time that
    callers waited. ``replayed_ns``: the same in a replay without a change, which shows how well the
    model fits. ``waited_ns``: estimate with the change; it lies between ``low_ns`` and ``high_ns``
    if the daemon needs as long for each request as recorded. ``no_cpu_ns``: time in which the
    daemon's threads would have a request and lack a CPU. ``max_background``: the recorded limit,
    None if unknown. ``unknown``: why there is no estimate.
    """

    mount: str
    requests: int
    left_out: int
    threads: int
    callers: int
    saved: int
    recorded_ns: Ns
    replayed_ns: Ns
    waited_ns: Ns | None
    low_ns: Ns | None
    high_ns: Ns | None
    no_cpu_ns: Ns | None
    max_background: int | None
    operations: tuple[OperationReplay, ...]
    unknown: Reason | None


@dataclass(frozen=True, repr=False)
class WhatIf(Rows):
    """Replays by mount, most requests first. ``change``: limits and their values, as given.
    ``cpus``: number of the host's CPUs, None if unknown."""

    mounts: tuple[MountReplay, ...]
    change: tuple[str, ...]
    cpus: int | None
    facts: Facts

    ROWS = "mounts"
    JSON_HIDDEN = ("facts",)
