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
    longest = max(map(_whole, result.requests)) or 1
    several = len(result.facts.mounts) > 1
    rows = [_group(group, longest, several) for group in result.alike()]
    parts = [
        tag("ol", rows, class_="slowest"),
        stage_legend({name for r in result.requests for name, _ in r.stages}, words_text.short),
    ]
    if note := words_text.names_guessed(result.guessed, result.requests):
        parts.append(tag("p", note, class_="note"))
    return join(parts)


def _group(group: list[Request], longest: int, several: bool) -> Markup:
    first, *more = [_slow(r, longest, several) for r in group]
    if not more:
        return tag("li", first)
    summary = tag("summary", slow_text.alike([r.duration_ns for r in group[1:]]))
    alike = tag("ul", [tag("li", one) for one in more], class_="slowest")
    return tag("li", first, tag("details", summary, alike))


def _slow(r: Request, longest: int, several: bool) -> Markup:
    whole = _whole(r) or 1
    parts = []
    for name, ns in r.stages:
        label = f"{words_text.short(name)} {duration(ns)}"
        parts.append(Part(ns / whole, colour(name), letters(name), label))
    details = [", ".join(parts) for parts in slow_text.details(r, several) if parts]
    what = slow_text.what(r, 4096)
    unique = "" if r.unique is None else f" request {r.unique}"
    head = tag(
        "p",
        tag("b", duration(r.duration_ns)),
        f" {what}",
        tag("span", unique, class_="dim"),
        class_="what",
    )
    bar = stacked(parts, f"{what}: its stages", whole / longest, 12) if parts else join()
    return join([head, bar, *(tag("p", line, class_="detail") for line in details)])


def _whole(r: Request) -> int:
    """Return the time in ns from the caller's system call to its return, as far as known."""
    return sum(ns for _, ns in r.stages)
