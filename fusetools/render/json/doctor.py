"""fusetools doctor as JSON."""

from __future__ import annotations

import dataclasses
import json

from fusetools.host.facts import HostFacts
from fusetools.plan.capabilities import Diagnosis
from fusetools.results.doctor import Described


def render(
    facts: HostFacts, diagnosis: Diagnosis, mounts: list[Described], hanging: list[str]
) -> str:
    advice = [*diagnosis.advice, *(mount.advice for mount in mounts if mount.advice)]
    return json.dumps(
        {
            "works": diagnosis.works,
            "layers": [dataclasses.asdict(layer) for layer in diagnosis.layers],
            "mounts": [
                {
                    "path": mount.path,
                    "kind": mount.kind,
                    "by": mount.answered_by,
                    "how": mount.how,
                    "probed": mount.probed,
                    "stacks": mount.stacks,
                }
                for mount in mounts
            ],
            "stuck": hanging,
            "advice": [dataclasses.asdict(each) for each in advice],
            "facts": dataclasses.asdict(facts),
        },
        indent=1,
    )
