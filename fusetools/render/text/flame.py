"""Text that accompanies a flame graph."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fusetools.figures import NS, duration, number, plural
from fusetools.names import given
from fusetools.printable import printable
from fusetools.reasons import Reason
from fusetools.render.text.footer import footer
from fusetools.render.text.footer import nothing as no_requests
from fusetools.render.text.layout import Whole, lines, prose
from fusetools.results.flame import STATES, Stacks

_TITLES = {
    "on-cpu": "On the CPU",
    "off-cpu": "Waiting on FUSE mounts",
    "off-wake": "Waiting on FUSE mounts, and who ended it",
    "requests": "FUSE requests, from caller to daemon, by the time callers waited",
    "graph": "The kernel's FUSE functions, by wall time",
}


_COUNTED = {
    "on-cpu": "sample",
    "off-cpu": "wait",
    "off-wake": "wait",
    "requests": "request",
    "graph": "call",
}
_OPTIONS = {
    "on-cpu": [],
    "off-cpu": ["--offcpu"],
    "off-wake": ["--offwake"],
    "requests": ["--requests"],
    "graph": ["--graph"],
}
FEW = 100  # fewer of these differ by chance: the sampling error of a tenth of them is a third


def title(shown: Stacks) -> str:
    """Return a flame graph's title: its content and the name of its recording."""
    return f"{what(shown)}: {shown.facts.name}"


def what(shown: Stacks) -> str:
    """Describe the content of a flame graph."""
    text = _TITLES[shown.graph]
    if "all" in shown.selection.split(", "):
        text = text.replace(" on FUSE mounts", "")
    return f"{text} ({printable(shown.selection)})" if shown.selection else text


def summary(shown: Stacks) -> str:
    """Return the total time and number of samples, waits, requests or calls."""
    count = plural(shown.count, _COUNTED[shown.graph])
    return count if shown.total_ns is None else f"{duration(shown.total_ns)} in {count}"


def command(shown: Stacks, path: str = "") -> str:
    """Return the command that draws this graph of a recording, without filters."""
    of = given(path) if path else []
    return shlex.join(["fusetools", "flame", *_OPTIONS[shown.graph], *of])


def nothing(shown: Stacks, filtered: bool, path: str = "") -> tuple[str, str, str]:
    """Explain why there is nothing to draw. Return the parts of an Error."""
    name = shown.facts.name
    left = shown.left_out
    others = left.idle.times + left.own.times + left.others.times
    counted = plural(others, _COUNTED[shown.graph])
    if shown.graph == "on-cpu":
        what = f"{name} holds no sample of the workload or the daemon"
    elif shown.graph in ("off-cpu", "off-wake"):
        what = f"{name} holds no wait inside a request"
    else:
        what = f"{name} holds no {_COUNTED[shown.graph]} that a caller waited for"
    if filtered:
        why = " ".join(" ".join(no_requests(shown.facts)).split()) if shown.facts.removed else ""
        return what + " that was asked for", why or f"{counted} left out", ""
    fix = f"{command(shown, path)} --all" if others else ""
    return what, f"{counted} left out", fix or "fusetools record -- WORKLOAD"


def render(shown: Stacks, earlier: Stacks | None, path: str, before: str = "") -> str:
    """Return the output of `fusetools flame` after it has written a file.

    ``before``: path of the earlier recording."""
    unit = ""
    if path.endswith((".folded", ".txt", ".collapsed")):
        unit = f"; its numbers are {_COUNTED[shown.graph]}s"
        unit = unit if shown.total_ns is None else "; its numbers are microseconds"
    output = prose(f"{path}: {what(shown)}: {summary(shown)}{unit}", rest="  ")
    if earlier is not None:
        name = printable(before or earlier.facts.name)
        output += prose(f"before: {summary(earlier)} ({name})", rest="  ")
        for line in _compared(shown, earlier):
            output += prose(line, rest="  ")
    for line in details(shown):
        output += prose(line, rest="  ")
    for note in shown.notes:
        output += prose(printable(f"note: {note.text}"), rest="  ")
        # Commands are not wrapped: users copy them.
        output += [Whole(f"  {fix(note)}")] if note.fix else []
    return lines([*output, *footer(shown.facts)])


def _compared(shown: Stacks, earlier: Stacks) -> Iterator[str]:
    """Yield what to know about a difference of two flame graphs."""
    each = [(of, sum(of.stacks.values()) - sum(of.untraced().values())) for of in (earlier, shown)]
    if any(weight for _, weight in each):
        before, after = (_weight(of, weight) for of, weight in each)
        yield f"left out: the tracer's own functions, {before} before, {after} now"
    if min(shown.count, earlier.count) < FEW:
        counts = f"{number(earlier.count)} before, {number(shown.count)} now"
        yield f"warning: few {_COUNTED[shown.graph]}s ({counts}): differences may be chance"


def _weight(of: Stacks, weight: float) -> str:
    if of.unit == "samples":
        return number(round(weight))
    return duration(round(weight * NS[of.unit]))


def details(shown: Stacks) -> list[str]:
    """Return remarks on a flame graph: omitted time, states, symbols, notes."""
    output: list[str] = []
    output += _left_out(shown)
    output += _whose(shown)
    if any(shown.states_ns.values()):
        whose = "" if shown.graph == "off-cpu" else "waits: "
        output.append(whose + ", ".join(_states(shown)))
    if shown.stackless:
        output.append(f"without a stack: {number(shown.stackless)} of {number(shown.count)}")
    if shown.unfinished:
        output.append(f"{plural(shown.unfinished, _COUNTED[shown.graph])} whose end was not seen")
    return output + _named(shown)


def fix(note: Reason) -> str:
    """Return the command that mends what a note is about, and the host to run it on if that
    matters."""
    place = f", on {note.subject['host'] or 'its host'}" if "host" in note.subject else ""
    return printable(f"fix{place}: {note.fix}")


def _whose(shown: Stacks) -> list[str]:
    """Explain why the total differs from the requests' total in fusetools stages."""
    output = []
    callers = (shown.total_ns or 0) - shown.daemons_ns
    if shown.graph in ("off-cpu", "off-wake") and shown.daemons_ns and callers:
        output.append(
            f"callers {duration(callers)}, daemon {duration(shown.daemons_ns)}: both wait for the "
            "same request, which fusetools stages counts once"
        )
    if shown.outside.total_ns:
        spent = "spent" if shown.graph == "requests" else "blocked"
        output.append(
            f"callers {spent} {duration(shown.outside.total_ns)} outside of requests, in system "
            "calls on mounts (fusetools stages)"
        )
    if shown.shared_ns:
        output.append(
            f"{duration(shown.shared_ns)} not counted again: the caller waited for another request "
            "at that time, too"
        )
    return output


def _states(shown: Stacks) -> Iterator[str]:
    for state in STATES:
        if state != "blocked_or_runnable":
            yield f"{state} {duration(shown.states_ns[state])}"
        elif ns := shown.states_ns[state]:
            yield f"blocked or runnable {duration(ns)} (no wake-up recorded)"


def _named(shown: Stacks) -> list[str]:
    parts = []
    for which, named in (("kernel", shown.kernel), ("user", shown.user)):
        if named.addresses:
            source = "the recording" if named.source == "recording" else printable(named.source)
            unnamed = f"{number(named.nameless)} of {number(named.addresses)} unnamed"
            parts.append(
                f"{which} functions {f'by {source}' if source else 'unnamed'}"
                f"{f' ({unnamed})' if source and named.nameless else ''}"
            )
    return [f"names: {', '.join(parts)}"] if parts else []


def _left_out(shown: Stacks) -> list[str]:
    left = shown.left_out
    idle = "the daemon without a request"
    if shown.graph == "graph":
        idle = "the daemon in fuse_dev_read, most of it without a request"
    selected = shown.selection not in ("", "all")
    others = "what was not selected" if selected else "unrelated processes"
    parts = [
        what if amount.total_ns is None else f"{duration(amount.total_ns)} of {what}"
        for amount, what in (
            (left.idle, idle),
            (left.own, "the workload outside of FUSE mounts"),
            (left.others, others),
        )
        if amount.times
    ]
    return [f"left out: {', '.join(parts)}"] if parts else []
