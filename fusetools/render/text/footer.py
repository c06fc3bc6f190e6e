"""What every command says of its recording."""

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
    """What is not in the figures: unmatched (``calls`` of them), lost, warnings."""
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
    return output + [f"warning: {printable(warning)}" for warning in losses.warnings]


def taken(took: Took | None) -> list[str]:
    """What recording took."""
    if took is None:
        return []
    about = "at least" if took.least else "about"
    each = f", {duration(took.ns / took.requests)} a request" if took.requests else ""
    return [f"recording took {about} {duration(took.ns)} of CPU time{each}"]


def corrected(less: Corrected | None) -> list[str]:
    """What was subtracted of that, and what was not."""
    if less is None:
        return []
    costs = ((less.event, "for each event"), (less.pair, "for a callback's two probes"))
    parts = [f"{duration(ns)} {what}" for ns, what in costs if ns is not None]
    output = [f"corrected by {', '.join(parts)}"]
    if less.remaining:
        output.append(f"  not subtracted: {', '.join(less.remaining)}")
    return output


def throttled(rows: Iterable[Throttled]) -> list[str]:
    """Whom a cgroup's quota kept from its CPUs."""
    return [
        f"the {printable(t.whose)} was throttled {plural(t.times, 'time')}, "
        f"{duration(t.ns)} in all, by the CPU quota of {printable(t.cgroup)}"
        for t in rows
    ]


def missing(all_missing: Iterable[Missing], layers: Collection[str] = LAYERS) -> list[str]:
    """The layers that were not recorded, and what would bring them."""
    output = []
    for m in all_missing:
        if m.layer in layers:
            output += prose(f"not recorded: {printable(m.what)} ({printable(m.why)})", rest="  ")
            output += ways_out(m.fix, "  ")
    return output


def ways_out(fix: str, indent: str) -> list[str]:
    """A command is copied whole: where it is too long it stands further left."""
    labels = ["fix", *["or"] * fix.count("\n")]
    ways = [f"{label:>3}: {printable(way)}" for label, way in zip(labels, fix.splitlines())]
    room = width() - max(map(len, ways), default=0)
    return [indent[: max(room, 2)] + way for way in ways]
