"""What would be recorded, as text: `record --dry-run`."""

from __future__ import annotations

from collections.abc import Iterable

from fusetools.host.facts import HostFacts
from fusetools.plan.events import Probe
from fusetools.plan.planner import ProbePlan, Target
from fusetools.printable import printable
from fusetools.render.text.figures import plural
from fusetools.render.text.footer import ways_out
from fusetools.render.text.layout import lines


def render(facts: HostFacts, plan: ProbePlan) -> str:
    """Events with their filters, probes by mount, and what is missing."""
    made = {probe.event for probe in plan.probes}
    said = [f"{plural(len(plan.events), 'event')} for perf, on Linux {facts.kernel}:"]
    for event in plan.events:
        if event.name in made:
            continue
        notes = ["workload" if event.workload else ""]
        notes += [STACKS[event.stack] if event.stack else ""]
        notes += [f"{event.frequency} samples a second" if event.frequency else ""]
        said.append(f"  {event.name}" + "".join(f", {note}" for note in notes if note))
        if event.filter:
            said.append(f"      if {event.filter}")
    for what, probes in places(plan):
        said += ["", f"{what}: {plural(len(probes), 'probe')}"]
        said += [
            f"  {probe.kind}  {probe.function or probe.event}  {probe.place}" for probe in probes
        ]
    if plan.graph:
        said += ["", f"function_graph: {plural(len(plan.functions), 'function')}"]
        said += [f"  {name}" for name, _ in plan.functions]
    if plan.unavailable:
        said.append("")
    for missing in plan.unavailable:
        said.append(f"missing: {missing.what}: {missing.why}")
        said += ways_out(missing.mend, "  ")
    return lines(map(printable, said))


STACKS = {"fp": "stacks by frame pointers", "dwarf": "copies of user stacks"}


def places(plan: ProbePlan) -> Iterable[tuple[str, list[Probe]]]:
    """The probes by mount; those of a library that several mounts use stand with the first."""
    rest = list(plan.probes)
    for target in plan.targets:
        own = _of(target, rest)
        rest = [probe for probe in rest if probe not in own]
        yield target.mount.path, own
    for what, in_kernel in (("kernel", True), ("to measure the probes' cost", False)):
        own = [probe for probe in rest if probe.in_kernel == in_kernel]
        if own:
            yield what, own


def _of(target: Target, probes: Iterable[Probe]) -> list[Probe]:
    files = {library.host_path for library in target.libraries}
    return [probe for probe in probes if probe.place.rpartition(":")[0] in files]
