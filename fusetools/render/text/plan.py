"""What would be recorded, as text: `record --dry-run`."""

from __future__ import annotations

from fusetools.figures import plural
from fusetools.host.facts import HostFacts
from fusetools.plan.planner import ProbePlan
from fusetools.printable import printable
from fusetools.record.planned import places
from fusetools.render.text.footer import ways_out
from fusetools.render.text.layout import lines


def render(facts: HostFacts, plan: ProbePlan) -> str:
    """Events with their filters, probes by mount, and what is missing."""
    made = {probe.event for probe in plan.probes}
    by_ftrace = sum(event.ftrace for event in plan.events)
    of = f"{plural(len(plan.events) - by_ftrace, 'event')} for perf"
    of += f", {by_ftrace} for ftrace" if by_ftrace else ""
    said = [f"{of}, on Linux {facts.kernel}:"]
    for event in plan.events:
        if event.name in made:
            continue
        notes = ["by ftrace" if event.ftrace else ""]
        notes += ["workload" if event.workload else ""]
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
