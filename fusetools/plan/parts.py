"""A plan reduced to one of its parts, so that the cost of each part can be measured alone."""

from __future__ import annotations

from dataclasses import replace

from fusetools.names import CALIBRATION
from fusetools.plan.collectors import CLOCK
from fusetools.plan.planner import ProbePlan

# From the caller inwards, then what belongs to no layer.
PARTS = ("syscall", "kernel", "request", "daemon", "on-CPU", "off-CPU")


def parts(plan: ProbePlan) -> dict[str, ProbePlan]:
    """Return each part of the plan that has something to record, as a separate plan."""
    plans = {name: _only(plan, name) for name in PARTS}
    return {name: part for name, part in plans.items() if part.events or part.graph}


def _only(plan: ProbePlan, part: str) -> ProbePlan:
    layers = {probe.event: probe.layer for probe in plan.probes}

    def wanted(event: str) -> bool:
        return (layers.get(event) or _layer(event)) == part

    probes = tuple(probe for probe in plan.probes if wanted(probe.event))
    if all(probe.function == CALIBRATION for probe in probes):
        probes = ()
    events = {probe.event for probe in probes}
    return replace(
        plan,
        probes=probes,
        events=tuple(
            event
            for event in plan.events
            if event.name in events or (event.name not in layers and wanted(event.name))
        ),
        graph=plan.graph if part == "kernel" else (),
        functions=plan.functions if part == "kernel" else (),
        switch_records=plan.switch_records and part == "off-CPU",
        in_part=plan.in_part and part == "off-CPU",  # it begins with the stacks of switches
    )


def _layer(event: str) -> str:
    """Return the part of one of the kernel's own events."""
    if event == CLOCK:
        return "on-CPU"
    system = event.partition(":")[0]
    return {"raw_syscalls": "syscall", "fuse": "request"}.get(system, "off-CPU")
