"""Remarks on the recording that every command prints."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusetools.figures import duration, number, plural, took
from fusetools.names import LAYERS
from fusetools.printable import printable
from fusetools.reasons import OF_THE_KERNEL, Reason
from fusetools.render.text.layout import OUT, Whole, limit, prose, width
from fusetools.results.facts import Corrected, Facts
from fusetools.session import Throttled, Took


def footer(facts: Facts, calls: int | None = None) -> list[str]:
    """Return losses and warnings. ``calls``: number of unmatched calls."""
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


# Words for a filter's values, for other values, and for the filter.
_REMOVED = {
    "mount": ("on {}", " on {}", "--mount"),
    "comm": ("of {}", " of {}", "--comm"),
    "pid": ("of pid {}", " of pid {}", "--pid"),
    "time": ("{}", " at other times", "--from and --to"),
    "operation": ("of {}", " of {}", "an operation"),
    "duration": ("of at least {}", " shorter", "--min"),
    "path": ("on a path that matches {}", " on other paths", "--path"),
}


def nothing(facts: Facts, what: str = "no requests") -> list[str]:
    """Return that there is nothing, and which filters removed what."""
    wanted, found = [], []
    for left in facts.removed:
        given, other, option = _REMOVED[left.filter]
        values = [f"{word} {v}" for word, v in zip(("from", "to"), left.wanted) if v]
        values = [" ".join(values)] if left.filter == "time" else list(left.wanted)
        wanted.append(given.format(" or ".join(values)))
        parts = [number(o.requests) + other.format(o.name or "unknown") for o in left.others]
        rest = left.requests - sum(o.requests for o in left.others)
        if rest and parts:
            parts.append(f"{number(rest)}{other[:3]} others")
        elif rest and left.alone:
            parts.append(number(rest) + other)
        found.append((f"without {option}" if left.alone else "without filters", ", ".join(parts)))
    head = " ".join([what, ", ".join(wanted)]).strip()
    if len(found) == 1:
        return prose(printable(f"{head}: {found[0][1]}"), rest="  ")
    told = [printable(f"{without}: {parts}") for without, parts in found if parts]
    if found and not told:
        told = [f"without filters: {plural(facts.removed[0].requests, 'request')}"]
    return prose(printable(head), rest="  ") + [
        line for each in told for line in prose(each, "  ", "    ")
    ]


def never_called(functions: Iterable[str]) -> list[str]:
    """List probed functions without calls."""
    names = ", ".join(sorted(set(map(printable, functions))))
    text = f"never called: {names}"
    return ["", *prose(text, rest="  ")] if names else []


def warnings(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in prose(f"warning: {printable(text)}", rest="  ")]


def taken(took: Took | None) -> list[str]:
    """Return the overhead of recording."""
    if took is None:
        return []
    about = "at least" if took.least else "about"
    each = f", {duration(took.ns / took.requests)} a request" if took.requests else ""
    return [f"recording took {about} {duration(took.ns)} of CPU time{each}"]


def corrected(less: Corrected | None) -> list[str]:
    """Return the costs that were subtracted, and those that were not."""
    if less is None:
        return []
    costs = ((less.event_ns, "for each event"), (less.pair_ns, "for a callback's two probes"))
    parts = [f"{duration(ns)} {what}" for ns, what in costs if ns is not None]
    output = [f"corrected by {', '.join(parts)}"]
    if less.remaining:
        output.append(f"  not subtracted: {', '.join(less.remaining)}")
    return output


def throttled(rows: Iterable[Throttled]) -> list[str]:
    """Return the processes that a cgroup's quota throttled."""
    return [
        f"the {printable(t.whose)} was throttled {plural(t.times, 'time')}, "
        f"{duration(t.ns)} in all, by the CPU quota of {printable(t.cgroup)}"
        for t in rows
    ]


def missing(all_missing: Iterable[Reason], layers: Collection[str] = LAYERS) -> list[str]:
    """Return the layers that were not recorded, and the fixes."""
    output = []
    for m in all_missing:
        if m.layer in layers and not (m.layer == "kernel" and m.code in OF_THE_KERNEL):
            output += prose(f"not recorded: {printable(m.what)} ({printable(m.why)})", rest="  ")
            output += ways_out(m.fix, "  ")
    return output


def following(commands: Iterable[str], descriptor: int = OUT) -> list[str]:
    """Return the next commands on one line, or on a line each if they do not fit."""
    commands = list(commands)
    line = f"next: {' · '.join(commands)}"
    if len(line) <= (limit(descriptor) or len(line)):
        return [Whole(line)]
    return [Whole(f"{'next:' if not at else '':5} {each}") for at, each in enumerate(commands)]


def ways_out(fix: str, indent: str, descriptor: int = OUT) -> list[str]:
    """Return a fix's commands. Users copy them: a long one is not wrapped, but indented less."""
    labels = ["fix", *["or"] * fix.count("\n")]
    ways = [f"{label:>3}: {printable(way)}" for label, way in zip(labels, fix.splitlines())]
    room = width(descriptor) - max(map(len, ways), default=0)
    return [Whole(indent[: max(room, 2)] + way) for way in ways]
