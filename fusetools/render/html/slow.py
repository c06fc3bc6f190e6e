"""Report section: the slowest requests."""

from __future__ import annotations

from fusetools.figures import duration
from fusetools.render.html.markup import Markup, join, tag
from fusetools.render.html.plots import Part, stacked
from fusetools.render.html.stages import colour, letters, stage_legend
from fusetools.render.text import slow as slow_text
from fusetools.render.text import words as words_text
from fusetools.results.request import Request
from fusetools.results.slow import Slowest


def render(result: Slowest) -> Markup:
    if not result.requests:
        return tag("p", "No requests.")
    longest = max(r.duration_ns for r in result.requests) or 1
    rows = [_slow(r, longest) for r in result.requests]
    parts = [
        tag("ol", rows, class_="slowest"),
        stage_legend(
            {name for r in result.requests for name, _ in _in_request(r)}, words_text.short
        ),
    ]
    if note := words_text.names_guessed(result.guessed, result.requests):
        parts.append(tag("p", note, class_="note"))
    return join(parts)


def _slow(r: Request, longest: int) -> Markup:
    parts = []
    left = r.duration_ns
    for name, ns in _in_request(r):
        drawn = min(ns, left)  # a stage may be joined with one after the request's end
        left -= drawn
        label = f"{words_text.short(name)} {duration(ns)}"
        parts.append(Part(drawn / (r.duration_ns or 1), colour(name), letters(name), label))
    details = [", ".join(parts) for parts in slow_text.details(r) if parts]
    what = slow_text.what(r, 4096)
    unique = "" if r.unique is None else f" request {r.unique}"
    return tag(
        "li",
        tag(
            "p",
            tag("b", duration(r.duration_ns)),
            f" {what}",
            tag("span", unique, class_="dim"),
            class_="what",
        ),
        stacked(parts, f"{what}: its stages", r.duration_ns / longest, 12) if parts else join(),
        [tag("p", line, class_="detail") for line in details],
    )


def _in_request(r: Request) -> list[tuple[str, int]]:
    """Return the stages that add up to the request's duration."""
    return [stage for stage in r.stages if stage[0].split("+")[0] in words_text.IN_REQUEST]
