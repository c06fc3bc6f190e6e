"""A plan as a result: `record --dry-run`."""

from __future__ import annotations

from collections.abc import Iterable

from fusetools.host.facts import HostFacts
from fusetools.plan.daemons import Target
from fusetools.plan.events import Probe
from fusetools.plan.planner import ProbePlan
from fusetools.results.plan import Planned, PlannedProbe


def summary(facts: HostFacts, plan: ProbePlan) -> Planned:
    placed = tuple(places(plan))
    return Planned(
        kernel=facts.kernel,
        events=plan.events,
        probes=tuple(
            PlannedProbe(what, probe.event, probe.definition())
            for what, probes in placed
            for probe in probes
        ),
        graph=plan.graph,
        missing=plan.missing,
        functions=tuple(name for name, _ in plan.functions),
        places=placed,
    )


def places(plan: ProbePlan) -> Iterable[tuple[str, tuple[Probe, ...]]]:
    """Yield the probes by mount; those of a library that several mounts use stand with the
    first."""
    rest = list(plan.probes)
    for target in plan.targets:
        own = _of(target, rest)
        rest = [probe for probe in rest if probe not in own]
        yield target.mount.path, tuple(own)
    for what, in_kernel in (("kernel", True), ("to measure the probes' cost", False)):
        own = [probe for probe in rest if probe.in_kernel == in_kernel]
        if own:
            yield what, tuple(own)


def _of(target: Target, probes: Iterable[Probe]) -> list[Probe]:
    files = {library.host_path for library in target.libraries}
    return [probe for probe in probes if probe.place.rpartition(":")[0] in files]
