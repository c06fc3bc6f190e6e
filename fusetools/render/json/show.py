"""fusetools show as JSON."""

from __future__ import annotations

from fusetools.render.json.dump import dump
from fusetools.render.json.slow import request
from fusetools.results.show import Shown


def render(result: Shown) -> str:
    moments = [vars(moment) for moment in result.moments]
    told = {"request": request(result.request), "moments": moments, "guessed": result.guessed}
    return dump({**told, **result.facts.to_json()})
