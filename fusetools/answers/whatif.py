"""Replays of a recording's requests with other limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.queue import mount_of
from fusetools.answers.requests import RequestQuery
from fusetools.answers.source import Source
from fusetools.answers.why import why
from fusetools.errors import Error
from fusetools.reasons import Code, Reason
from fusetools.results.whatif import MountReplay, OperationReplay, WhatIf

BACKGROUND = "max_background"
_COUNTS = {"threads": "threads", BACKGROUND: "requests"}  # the other limits are timeouts
_MOST = 1 << 16
_STACKS = "fusetools record --detail stacks"
_MAX_SECONDS = 1 << 30
# Largest deviation of the replay without a change from the recording, as a share.
_DEVIATES = 0.25


class Change(NamedTuple):
    """Limits of a replay, in the order of the core's arguments; timeouts in ns; 0: it stays."""

    threads: int = 0
    entry_timeout: int = 0
    attr_timeout: int = 0
    negative_timeout: int = 0
    max_background: int = 0


def parse(settings: Sequence[str]) -> Change:
    """Return the change. Raise Error for an unknown or invalid setting."""
    values = Change()._asdict()
    example = "fusetools whatif threads=8"
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in values:
            why = f"it is none of {', '.join(values)}"
            what = f"{name or setting!r} cannot be changed in a replay"
            raise Error(what, why, example, instead=(setting, "threads=8"))
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
            raise Error(f"{setting} has no number", f"{name}=NUMBER is needed", example)
        number = float(value)
        if name in _COUNTS and not (number.is_integer() and 1 <= number <= _MOST):
            what = f"{setting} is no number of {_COUNTS[name]}"
            raise Error(what, f"1 to {_MOST:,}", example, instead=(setting, f"{name}=8"))
        if not 0 < number <= _MAX_SECONDS:
            raise Error(f"{setting} is no number of seconds", "a number above 0 is needed", example)
        values[name] = int(number) if name in _COUNTS else round(number * 1e9)
    return Change(**values)


def whatif(source: Source, settings: Sequence[str], filters: Filters) -> WhatIf:
    """Replay the requests with other limits. ``settings``: NAME=NUMBER each."""
    change = parse(settings)
    query = RequestQuery(source)
    if change.max_background and source.detail == "stacks":
        query.probes = source.with_stacks(source.catalogue.named())
    limits = {
        mount.connection: mount.limits[BACKGROUND]
        for mount in source.session.mounts
        if mount.connection is not None and mount.limits.get(BACKGROUND)
    }
    answer, facts = query(core.native.whatif, filters, change, limits)
    locked = change.threads > 0 and any(
        finding.reason.code == Code.DAEMON_LOCK for finding in why(source, filters).findings
    )
    mounts = tuple(
        _mount(mount_of(query.names, of["connection"]), of, change, locked, limits)
        for of in answer["mounts"]
        if of["requests"] or of["left_out"]
    )
    facts = source.with_missing_detail(facts)
    return WhatIf(mounts, tuple(settings), answer["cpus"], facts)


def _mount(
    name: str,
    of: core.native.MountReplays,
    change: Change,
    locked: bool,
    limits: Mapping[int, int],
) -> MountReplay:
    recorded = of["recorded"]["waited"]
    best = _best(of)
    scales = [recorded / same["waited"] if same["waited"] else 1.0 for same in of["same"]]
    estimates = [round(scale * changed["waited"]) for scale, changed in zip(scales, of["changed"])]
    bounds = [*estimates, *(changed["waited"] for changed in of["changed"])]
    unknown = _unknown(of, change, locked, limits)
    after = {operation: ns for operation, (_, ns) in of["changed"][best]["operations"].items()}
    rows = (
        OperationReplay(operation, requests, ns, round(after.get(operation, 0) * scales[best]))
        for operation, (requests, ns) in of["recorded"]["operations"].items()
        if ns
    )
    return MountReplay(
        mount=name,
        requests=of["requests"],
        left_out=of["left_out"],
        threads=of["threads"],
        callers=of["callers"],
        saved=of["saved"],
        recorded_ns=recorded,
        replayed_ns=of["same"][best]["waited"],
        waited_ns=None if unknown else estimates[best],
        low_ns=None if unknown else min(bounds),
        high_ns=None if unknown else max(bounds),
        no_cpu_ns=None if unknown else of["changed"][best]["no_cpu"],
        max_background=limits.get(of["connection"] or -1),
        operations=() if unknown else tuple(sorted(rows, key=lambda row: -row.recorded_ns)),
        unknown=unknown,
    )


def _unknown(
    of: core.native.MountReplays, change: Change, locked: bool, limits: Mapping[int, int]
) -> Reason | None:
    """Return why there is no estimate."""
    threads, background = change.threads, change.max_background
    if background and of["connection"] not in limits:
        return Reason(Code.REPLAY_LIMIT)
    if background and of["writes"]:
        return Reason(Code.REPLAY_WRITES, {}, {"requests": of["writes"]})
    if background and of["unsure"]:
        return Reason(Code.REPLAY_STACKS, {}, {"requests": of["unsure"]}, _STACKS)
    if not of["recorded"]["waited"]:
        return Reason(Code.REPLAY_EMPTY, {}, {"requests": of["requests"] + of["left_out"]})
    if threads and 2 * of["ring"] > of["requests"]:
        return Reason(Code.REPLAY_RING, {}, {"requests": of["requests"], "ring": of["ring"]})
    if threads and of["handed"]:
        return Reason(Code.REPLAY_HANDED, {}, {"requests": of["requests"], "handed": of["handed"]})
    if locked:
        return Reason(Code.REPLAY_LOCK, {}, {}, "fusetools why")
    deviation = abs(of["same"][_best(of)]["waited"] / of["recorded"]["waited"] - 1)
    if deviation > _DEVIATES:
        return Reason(Code.REPLAY_DEVIATES, {}, {"deviation_share": deviation})
    return None


def _best(of: core.native.MountReplays) -> int:
    """Return which of the two models fits the recording best."""
    return min((0, 1), key=lambda at: abs(of["same"][at]["waited"] - of["recorded"]["waited"]))
