"""fusetools record as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.record import Outcome


def render(outcome: Outcome) -> str:
    return dump(
        {
            "recording": None if outcome.output is None else str(outcome.output),
            "bytes": outcome.size,
            "seconds": outcome.seconds,
            "requests": outcome.requests,
            "events": outcome.events,
            "lost": outcome.lost,
            "exit_status": outcome.exit_status,
            "warnings": list(outcome.warnings),
            "unavailable": [vars(m) for m in outcome.unavailable],
        }
    )
