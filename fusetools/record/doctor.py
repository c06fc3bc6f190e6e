"""A preview of what a recording would find on this host, mount by mount."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusetools.errors import Error
from fusetools.figures import plural
from fusetools.host.facts import HostFacts, Mount
from fusetools.host.fusectl import fusectl
from fusetools.host.limits import CONNECTIONS, change, limits
from fusetools.host.selftest import self_test_unique
from fusetools.plan import daemons, planner, probeset
from fusetools.plan.capabilities import Advice, Diagnosis, diagnose, traceable
from fusetools.plan.options import Options, Workload
from fusetools.record import symbols
from fusetools.results.doctor import PROBED, Described, Doctor, Limit
from fusetools.results.stuck import Told


def examined(
    facts: HostFacts,
    hanging: Sequence[str] = (),
    unknown: Sequence[str] = (),
    dead: Sequence[str] = (),
    clients: Mapping[str, tuple[Told, ...]] | None = None,
) -> Doctor:
    """Return what a recording would find. ``hanging``: mounts that do; ``unknown``: those that may;
    ``dead``: those whose connection was aborted; ``clients``: what clients of CernVM-FS say."""
    told = clients or {}
    known = limits([mount.connection for mount in facts.mounts])
    with fusectl() as (place, _):
        mounted = place == CONNECTIONS
    mounts = tuple(
        dataclasses.replace(
            describe(facts, mount),
            limits=_limits(mount, known, mounted),
            client=told.get(mount.path, ()),
        )
        for mount in facts.mounts
    )
    diagnosis = counted(diagnose(facts), mounts)
    advice = (*diagnosis.advice, *(mount.advice for mount in mounts if mount.advice))
    return Doctor(
        works=diagnosis.works,
        layers=diagnosis.layers,
        mounts=mounts,
        stuck=tuple(hanging),
        advice=advice,
        facts=facts,
        unknown=tuple(unknown),
        dead=tuple(dead),
    )


def _limits(
    mount: Mount, known: Mapping[int, Mapping[str, int]], mounted: bool
) -> tuple[Limit, ...]:
    connection = mount.connection
    rows = known.get(connection, {}).items()
    return tuple(
        Limit(name, value, change(name, connection, mounted)) for name, value in rows if value
    )


def counted(diagnosis: Diagnosis, mounts: Sequence[Described]) -> Diagnosis:
    """Return the diagnosis with the number of mounts whose daemons can be probed, and how well."""
    layers = []
    for layer in diagnosis.layers:
        if layer.name == "daemon" and layer.available and mounts:
            each = [(sum(mount.probed == what for mount in mounts), what) for what in PROBED]
            how = ", ".join(f"{what} of {count}" for count, what in each if count)
            layer = dataclasses.replace(
                layer, how=f"uprobes, {plural(len(mounts), 'mount')}: {how}"
            )
        layers.append(layer)
    return dataclasses.replace(diagnosis, layers=tuple(layers))


def with_self_test(facts: HostFacts) -> HostFacts:
    """Return the facts with ``fuse_send_unique``, if it can be found out."""
    if (
        facts.uid != 0
        or not facts.perf_can_record
        or "fuse:fuse_request_send" not in facts.tracepoints
    ):
        return facts
    return dataclasses.replace(facts, fuse_send_unique=self_test_unique(1.0))


def describe(facts: HostFacts, mount: Mount) -> Described:
    """Describe what `fusetools record` would plan for this mount alone."""
    kind = mount.fstype.partition(".")[2] or mount.source
    if mount.daemon_pid is None:
        return Described(mount.path, kind, "", mount.why)
    where = "" if mount.seen_by is None else ", in another mount namespace"
    who = f"{mount.comm}, pid {mount.daemon_pid}{where}"
    if not traceable(mount):
        return Described(mount.path, kind, who, mount.why)
    alone = dataclasses.replace(facts, mounts=(mount,))
    options = Options(Workload(("true",)))
    try:
        targets = daemons.targets(alone, options, probeset.builtin())
        plan = planner.plan(alone, options, targets, symbols.of_targets(targets))
    except Error as error:
        broken = Advice(f"{error.what}: {error.why}".rstrip(": "), error.fix, False)
        return Described(mount.path, kind, who, "nothing can be recorded", broken)
    probes = [probe for probe in plan.probes if probe.layer == "daemon"]
    lacks = [why for why in plan.missing if why.layer in ("daemon", "names")]
    advice = None
    if lacks:
        fix = lacks[0].fix if probes else lacks[0].fix or "fusetools record --fs FILE.toml -- …"
        advice = Advice(lacks[0].text, fix, False)
    if not probes:
        how = "no probe set fits: requests, and what its threads do, are recorded"
        return Described(mount.path, kind, who, how, advice)
    calls = {probe.function for probe in probes if probe.role == "entry"}
    timed = any(probe.role == "return" for probe in probes)
    probed = "replies"
    what = "replies (no names of callbacks)"
    if calls:
        probed = "callbacks" if timed else "callbacks' entries"
        what = plural(len(calls), "callback") + ("" if timed else ", entries alone")
    places = {
        probe.place.rpartition(":")[0] for probe in probes if probe.role in ("entry", "reply")
    }
    names = ", ".join(
        Path(file.path).name for file in plan.targets[0].libraries if file.host_path in places
    )
    stacks = _stacks(mount, plan.copies)
    return Described(mount.path, kind, who, f"{what} in {names}", advice, probed, stacks)


def _stacks(mount: Mount, copied: bool) -> str:
    """How the user's part of a recording's stacks of the daemon will be."""
    if daemons.is_32bit(mount):  # neither its frame pointers nor its unwind tables are read
        return "stacks of the daemon: not known to be whole: it is a 32-bit program"
    without = daemons.without_frame_pointers(mount)
    if not without:
        return "stacks of the daemon: whole"
    names = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
    keep = "keeps" if len(without) == 1 else "keep"
    how = "record copies the stacks of its waits" if copied else "its stacks are cut there"
    return f"stacks of the daemon: {names} {keep} no frame pointers: {how}"
