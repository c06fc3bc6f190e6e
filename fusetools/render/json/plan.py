"""What would be recorded, as JSON: `record --dry-run`."""

from __future__ import annotations

import json

from fusetools.host.facts import HostFacts
from fusetools.plan.planner import ProbePlan
from fusetools.render.text.plan import places


def render(facts: HostFacts, plan: ProbePlan) -> str:
    """The same, all of it."""
    found = {
        "kernel": facts.kernel,
        "events": [
            {
                "name": event.name,
                "filter": event.filter,
                "stack": event.stack,
                "workload": event.workload,
                "frequency": event.frequency,
            }
            for event in plan.events
        ],
        "probes": [
            {"mount": what, "event": probe.event, "definition": probe.definition()}
            for what, probes in places(plan)
            for probe in probes
        ],
        "graph": list(plan.graph),
        "unavailable": [vars(missing) for missing in plan.unavailable],
    }
    return json.dumps(found, indent=2) + "\n"
