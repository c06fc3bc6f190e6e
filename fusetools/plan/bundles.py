"""Probes that are recorded as one event, for a recording that begins and ends quickly.

perf and the kernel take time for each event, not for each probe: closing 28 events of one uprobe
each took 2.3 s, 2 events of 14 each 0.4 s (Linux 6.18, 2 CPUs). Since Linux 5.4 several probes with
the same arguments can share an event, and an argument can be a constant: a number in each probe
distinguishes them. In the recording each probe has its own event again
(native/core/src/write/bundles.rs).

Simultaneous recordings cannot use the same event names in the kernel: in all but the first
recording, event names contain the recording's number, by the same mechanism.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from fusetools.host.facts import HostFacts
from fusetools.plan.events import RETURN, Event, Probe
from fusetools.plan.planner import ProbePlan

CONSTANT = "imm-value"  # as tracefs' README calls it
MOST = 1 << 16  # numbers of a bundle's probes


def can_be_numbered(fetch_args: Sequence[str]) -> bool:
    """Whether this kernel's events can have other names than their probes: two simultaneous
    recordings need that."""
    return CONSTANT in fetch_args


def bundled(facts: HostFacts, plan: ProbePlan, recording: int = 0) -> ProbePlan:
    """The plan with as few events for the probes in daemons as this kernel allows.

    ``recording``: its number among simultaneous recordings; other than 0 needs can_be_numbered().
    """
    if not can_be_numbered(facts.fetch_args):
        return plan
    plan = _named(plan, recording)
    scopes = {event.name: replace(event, name="") for event in plan.events}
    alike: dict[tuple[object, ...], list[Probe]] = defaultdict(list)
    for probe in plan.probes:
        if not probe.in_kernel and probe.recorded_as in scopes:
            types = tuple((name, value.rpartition(":")[2]) for name, value in probe.arguments)
            group = probe.event.partition(":")[0]
            alike[group, probe.kind, types, scopes[probe.recorded_as]].append(probe)
    bundled_probes: dict[str, Probe] = {}
    events: dict[str, Event] = {}
    together = [probes for probes in alike.values() if 1 < len(probes) < MOST]
    for index, probes in enumerate(together, 1):
        group = probes[0].event.partition(":")[0]
        name = f"{group}:{_prefix(recording)}bundle_{index}"
        for number, probe in enumerate(probes, 1):
            bundled_probes[probe.event] = replace(probe, bundle=name, number=number)
            events[probe.recorded_as] = replace(scopes[probe.recorded_as], name=name)
    return replace(
        plan,
        probes=tuple(bundled_probes.get(probe.event, probe) for probe in plan.probes),
        events=tuple(dict.fromkeys(events.get(event.name, event) for event in plan.events)),
    )


def unbundled(plan: ProbePlan, recording: int = 0) -> ProbePlan:
    """The plan with one event per probe again."""
    shared: dict[str, list[str]] = defaultdict(list)
    for probe in plan.probes:
        if probe.bundle:
            shared[probe.bundle].append(probe.event)
    events = [
        replace(event, name=name)
        for event in plan.events
        for name in shared.get(event.name, [event.name])
    ]
    probes = (replace(probe, bundle="", number=0) for probe in plan.probes)
    return _named(replace(plan, probes=tuple(probes), events=tuple(events)), recording)


def _named(plan: ProbePlan, recording: int) -> ProbePlan:
    """The plan with each probe recorded separately, under a name unique to that recording."""
    if not recording:
        return plan
    bases = dict.fromkeys(probe.event.removesuffix(RETURN) for probe in plan.probes)
    numbers = {base: number for number, base in enumerate(bases, 1)}
    names = {}
    for event in (probe.event for probe in plan.probes):
        base = event.removesuffix(RETURN)
        group = event.partition(":")[0]
        # A return is recognised by its name (Tracefs.missed_returns).
        names[event] = f"{group}:{_prefix(recording)}{numbers[base]}{event[len(base) :]}"
    probes = (replace(probe, bundle=names[probe.event], number=1) for probe in plan.probes)
    events = (replace(event, name=names.get(event.name, event.name)) for event in plan.events)
    return replace(plan, probes=tuple(probes), events=tuple(events))


def _prefix(recording: int) -> str:
    return f"recording_{recording}_" if recording else ""
