"""What every command prints about its recording."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusetools.figures import duration, number, plural, took
from fusetools.missing import Missing
from fusetools.names import LAYERS
from fusetools.printable import printable
from fusetools.render.text.layout import prose, width
from fusetools.results.facts import Corrected, Facts
from fusetools.session import Throttled, Took


def footer(facts: Facts, calls: int | None = None) -> list[str]:
    """What the figures do not include: unmatched (``calls`` of them), lost, warnings."""
    r, losses = facts.requests, facts.losses
    parts = []
    if r.begun or r.ended:
        without = f", {number(r.unanswered)} without an answer" if r.unanswered else ""
        parts.append(f"{plural(r.begun, 'request')}, {number(r.matched)} matched{without}")
    if calls is not None:
        parts.append(plural(calls, "unmatched call"))
    parts.append(plural(losses.lost, "LOST event" if losses.lost else "lost event"))
    output = [f"{took(facts.seconds)}: " + "; ".join(parts)]
    output += taken(facts.took)
    output += corrected(facts.corrected)
    if losses.throttled:
        output.append(
            f"warning: the kernel throttled the events {plural(losses.throttled, 'time')}"
        )
    output += throttled(facts.throttled)
    return output + warnings(losses.warnings)


def warnings(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in prose(f"warning: {printable(text)}", rest="  ")]


def taken(took: Took | None) -> list[str]:
    """The cost of recording."""
    if took is None:
        return []
    about = "at least" if took.least else "about"
    each = f", {duration(took.ns / took.requests)} a request" if took.requests else ""
    return [f"recording took {about} {duration(took.ns)} of CPU time{each}"]


def corrected(less: Corrected | None) -> list[str]:
    """Which costs were subtracted, and which were not."""
    if less is None:
        return []
    costs = ((less.event_ns, "for each event"), (less.pair_ns, "for a callback's two probes"))
    parts = [f"{duration(ns)} {what}" for ns, what in costs if ns is not None]
    output = [f"corrected by {', '.join(parts)}"]
    if less.remaining:
        output.append(f"  not subtracted: {', '.join(less.remaining)}")
    return output


def throttled(rows: Iterable[Throttled]) -> list[str]:
    """Which processes a cgroup's quota throttled."""
    return [
        f"the {printable(t.whose)} was throttled {plural(t.times, 'time')}, "
        f"{duration(t.ns)} in all, by the CPU quota of {printable(t.cgroup)}"
        for t in rows
    ]


def missing(all_missing: Iterable[Missing], layers: Collection[str] = LAYERS) -> list[str]:
    """The layers that were not recorded, and the fixes."""
    output = []
    for m in all_missing:
        if m.layer in layers:
            output += prose(f"not recorded: {printable(m.what)} ({printable(m.why)})", rest="  ")
            output += ways_out(m.fix, "  ")
    return output


def ways_out(fix: str, indent: str) -> list[str]:
    """Commands are not wrapped, so that they can be copied: a long one is indented less."""
    labels = ["fix", *["or"] * fix.count("\n")]
    ways = [f"{label:>3}: {printable(way)}" for label, way in zip(labels, fix.splitlines())]
    room = width() - max(map(len, ways), default=0)
    return [indent[: max(room, 2)] + way for way in ways]
