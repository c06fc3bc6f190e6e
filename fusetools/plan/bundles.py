"""Probes that are recorded as one event, for a recording that begins and ends quickly.

perf and the kernel take time for each event, not for each probe: closing 28 events of one uprobe
each took 2.3 s, 2 events of 14 each 0.4 s (Linux 6.18, 2 CPUs). Since Linux 5.4 several probes with
the same arguments can share an event, and an argument can be a constant: a number in each probe
distinguishes them, and a 0 stands for a number that only others of the event have. In the recording
each probe has its own event and arguments again (native/core/src/write/bundles.rs).

Simultaneous recordings cannot use the same event names in the kernel: in all but the first
recording, event names contain the recording's number, by the same mechanism.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusetools.host.facts import HostFacts
from fusetools.plan.events import RETURN, Event, Probe
from fusetools.plan.planner import ProbePlan

CONSTANT = "imm-value"  # as tracefs' README calls it
MOST = 1 << 16  # numbers of a bundle's probes
LONGEST = 8  # arguments: each takes 8 bytes of every sample
_NUMBER = re.compile(r"[usx](8|16|32|64)")  # a type that can be a constant


def can_be_numbered(fetch_args: Sequence[str]) -> bool:
    """Return whether this kernel's events can have other names than their probes: two simultaneous
    recordings need that."""
    return CONSTANT in fetch_args


def bundled(
    facts: HostFacts, plan: ProbePlan, recording: int = 0, padded: bool = True
) -> ProbePlan:
    """Return the plan with as few events for the probes in daemons as this kernel allows.

    ``recording``: its number among simultaneous recordings; other than 0 needs can_be_numbered().
    ``padded``: also probes of different arguments share an event, which native.merge() undoes.
    """
    if not can_be_numbered(facts.fetch_args):
        return plan
    plan = _named(plan, recording)
    scopes = {event.name: replace(event, name="") for event in plan.events}
    alike: dict[tuple[object, ...], list[_Bundle]] = defaultdict(list)
    for probe in plan.probes:
        if not probe.in_kernel and not probe.by_opcode and probe.recorded_as in scopes:
            types = {name: value.rpartition(":")[2] for name, value in probe.arguments}
            fixed = {n: t for n, t in types.items() if not (padded and _NUMBER.fullmatch(t))}
            group = probe.event.partition(":")[0]
            of_kind = alike[group, probe.kind, tuple(fixed.items()), scopes[probe.recorded_as]]
            bundle = next((one for one in of_kind if one.takes(types)), None)
            if bundle is None:
                of_kind.append(bundle := _Bundle())
            bundle.add(probe, types)
    bundled_probes: dict[str, Probe] = {}
    events: dict[str, Event] = {}
    together = [bundle for of_kind in alike.values() for bundle in of_kind if bundle.is_shared]
    for index, bundle in enumerate(together, 1):
        group = bundle.probes[0].event.partition(":")[0]
        name = f"{group}:{_prefix(recording)}bundle_{index}"
        layout = tuple(bundle.types.items())
        for number, probe in enumerate(bundle.probes, 1):
            numbered = replace(probe, bundle=name, number=number, layout=layout)
            bundled_probes[probe.event] = numbered
            events[probe.recorded_as] = replace(scopes[probe.recorded_as], name=name)
    return replace(
        plan,
        probes=tuple(bundled_probes.get(probe.event, probe) for probe in plan.probes),
        events=tuple(dict.fromkeys(events.get(event.name, event) for event in plan.events)),
    )


class _Bundle:
    """Probes that share an event, and the types of their arguments."""

    def __init__(self) -> None:
        self.probes: list[Probe] = []
        self.types: dict[str, str] = {}

    @property
    def is_shared(self) -> bool:
        return len(self.probes) > 1

    def takes(self, types: Mapping[str, str]) -> bool:
        """Return whether a probe with these arguments fits in."""
        both = {**self.types, **types}
        short = len(both) <= LONGEST or types == self.types
        alike = all(both[name] == kind for name, kind in self.types.items())
        return short and alike and len(self.probes) < MOST - 1

    def add(self, probe: Probe, types: Mapping[str, str]) -> None:
        self.probes.append(probe)
        self.types.update(types)


def unbundled(plan: ProbePlan, recording: int = 0) -> ProbePlan:
    """Return the plan with one event per probe again."""
    shared: dict[str, list[str]] = defaultdict(list)
    for probe in plan.probes:
        if probe.bundle:
            shared[probe.bundle].append(probe.event)
    events = [
        replace(event, name=name)
        for event in plan.events
        for name in shared.get(event.name, [event.name])
    ]
    probes = (replace(probe, bundle="", number=0, layout=()) for probe in plan.probes)
    return _named(replace(plan, probes=tuple(probes), events=tuple(events)), recording)


def _named(plan: ProbePlan, recording: int) -> ProbePlan:
    """Return the plan with each probe recorded separately, under a name unique to that
    recording."""
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
