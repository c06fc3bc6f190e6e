"""fusetools flame as JSON."""

from __future__ import annotations

from typing import Any

from fusetools.render.json.dump import dump
from fusetools.results.flame import Stacks


def render(shown: Stacks, earlier: Stacks | None) -> str:
    """The figures as JSON."""
    figures = _figures(shown)
    if earlier is not None:
        figures["before"] = _figures(earlier)
    return dump(figures)


def _figures(shown: Stacks) -> dict[str, Any]:
    left = shown.left_out
    return {
        "graph": shown.graph,
        "asked": shown.asked,
        "count": shown.count,
        "total": shown.total,
        "unit": shown.unit if shown.graph == "on-cpu" else "ns",
        "stacks": len(shown.stacks),
        "stackless": shown.stackless,
        "cut": shown.cut,
        "unfinished": shown.unfinished,
        "states": shown.states,
        "daemons": shown.daemons,
        "shared": shown.shared,
        "left_out": {
            name: {"count": amount[0], "total": amount[1]}
            for name, amount in (("idle", left.idle), ("own", left.own), ("others", left.others))
        },
        "names": {
            which: {
                "source": named.source or None,
                "addresses": named.addresses,
                "nameless": named.nameless,
            }
            for which, named in (("kernel", shown.kernel), ("user", shown.user))
        },
        "notes": list(shown.notes),
        **shown.facts.to_json(),
    }
