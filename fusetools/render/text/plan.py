"""`record --dry-run` as text."""

from __future__ import annotations

from fusetools.figures import plural
from fusetools.printable import printable
from fusetools.render.text.footer import ways_out
from fusetools.render.text.layout import entry, lines
from fusetools.results.plan import Planned


def render(result: Planned) -> str:
    """Return the events with their filters, the probes by mount, and the missing parts."""
    made = {probe.event for probe in result.probes}
    by_ftrace = sum(event.ftrace for event in result.events)
    of = f"{plural(len(result.events) - by_ftrace, 'event')} for perf"
    of += f", {by_ftrace} for ftrace" if by_ftrace else ""
    output = [f"{of}, on Linux {result.kernel}:"]
    for event in result.events:
        if event.name in made:
            continue
        notes = ["by ftrace" if event.ftrace else ""]
        notes += ["workload" if event.workload else ""]
        notes += [STACKS[event.stack] if event.stack else ""]
        notes += [f"{event.frequency} samples a second" if event.frequency else ""]
        shown = "".join(f", {note}" for note in notes if note)
        output.append(entry(printable(f"  {event.name}{shown}")))
        if event.condition:
            output.append(entry(printable(f"      if {event.condition}")))
    for what, probes in result.places:
        output += ["", printable(f"{what}: {plural(len(probes), 'probe')}")]
        output += [
            entry(printable(f"  {probe.kind}  {probe.function or probe.event}  {probe.place}"))
            for probe in probes
        ]
    if result.graph:
        output += ["", f"function_graph: {plural(len(result.functions), 'function')}"]
        output += [entry(printable(f"  {name}")) for name in result.functions]
    if result.missing:
        output.append("")
    for missing in result.missing:
        output.append(printable(f"missing: {missing.text}"))
        output += ways_out(missing.fix, "  ")
    return lines(output)


STACKS = {"fp": "stacks by frame pointers", "dwarf": "copies of user stacks"}
