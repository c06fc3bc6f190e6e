"""fusetools queue as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.results.queue import Queue


def render(result: Queue) -> str:
    rows = [
        {
            **{key: value for key, value in vars(m).items() if key != "levels"},
            "whole": vars(m.whole),
            "parts": [vars(part) for part in m.parts],
            "share_short": m.share_short,
            "share_runnable": m.share_runnable,
        }
        for m in result.mounts
    ]
    return dump({"mounts": rows, **result.facts.to_json()})
