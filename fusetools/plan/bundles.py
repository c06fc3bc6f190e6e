"""Probes that are recorded as one event, for a recording that begins and ends quickly.

perf and the kernel take time for each event, not for each probe: closing 28 events of one uprobe
each took 2.3 s, two of 14 each 0.4 s (Linux 6.18, 2 CPUs). From Linux 5.4 on an event can be of
several probes with the same arguments, and an argument can be a constant: a number in each probe
tells them apart. In the recording each probe has an event of its own again
(native/core/src/write/bundles.rs).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from fusetools.host.facts import HostFacts
from fusetools.plan.events import Event, Probe
from fusetools.plan.planner import ProbePlan

CONSTANT = "imm-value"  # as tracefs' README calls it
MOST = 1 << 16  # numbers of a bundle's probes


def bundled(facts: HostFacts, plan: ProbePlan) -> ProbePlan:
    """The plan with as few events as this kernel allows for the probes in daemons.

    Those of the kernel's own functions stay as they are: where clocks are compared, function by
    function, they are read before the recording is put together.
    """
    if CONSTANT not in facts.fetch_args:
        return plan
    scopes = {event.name: replace(event, name="") for event in plan.events}
    alike: dict[tuple[object, ...], list[Probe]] = defaultdict(list)
    for probe in plan.probes:
        if not probe.in_kernel and probe.event in scopes:
            types = tuple((name, value.rpartition(":")[2]) for name, value in probe.arguments)
            group = probe.event.partition(":")[0]
            alike[group, probe.kind, types, scopes[probe.event]].append(probe)
    found: dict[str, Probe] = {}
    events: dict[str, Event] = {}
    together = [probes for probes in alike.values() if 1 < len(probes) < MOST]
    for index, probes in enumerate(together, 1):
        name = f"{probes[0].event.partition(':')[0]}:bundle_{index}"
        for number, probe in enumerate(probes, 1):
            found[probe.event] = replace(probe, bundle=name, number=number)
            events[probe.event] = replace(scopes[probe.event], name=name)
    return replace(
        plan,
        probes=tuple(found.get(probe.event, probe) for probe in plan.probes),
        events=tuple(dict.fromkeys(events.get(event.name, event) for event in plan.events)),
    )


def unbundled(plan: ProbePlan) -> ProbePlan:
    """The plan with an event for each probe again."""
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
    return replace(plan, probes=tuple(probes), events=tuple(events))
