"""fusetools stages as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from fusetools.figures import at_least, duration, number, plural, share
from fusetools.printable import printable
from fusetools.reasons import OF_THE_KERNEL
from fusetools.render.text.footer import footer, nothing, ways_out
from fusetools.render.text.layout import BOLD, PLAIN, Whole, lines, prose, table, wrapped
from fusetools.render.text.words import OUTSIDE, PARTS, REASONS, WORDS, name_of, unsplit
from fusetools.results.stages import MountCalls, OperationStages, Stage, Stages

_BAR = 8


_LONG_BAR = 16
_MOST_DISKS = 5


# Share of all system calls' time from which an overview shows one's time outside of requests.
_LEAST = 0.01


def render(
    result: Stages,
    unit: str = "",
    overview: bool = True,
    overhead: bool = False,
    command: Sequence[str] = ("fusetools", "stages"),
) -> str:
    """Return a table per operation, or lines per group if requests are grouped by a key.

    ``overview``: only one line per operation; ``overhead``: with the overhead of recording in each
    stage; ``command``: the one that was asked."""
    output: list[str] = []
    begun = bool(result.facts.requests.begun)
    if not result.operations:
        output = nothing(result.facts)
    elif result.by:
        for _, group in groupby(result.operations, lambda o: (o.operation, o.waits)):
            output += [*_lines(list(group), result.by, unit), ""]
        output += _legend(result.operations)
    else:
        matched = [o for o in result.operations if o.timed]
        if overview and not overhead and len(matched) > 1:
            output += [*_lines(matched, "", unit), *_legend(matched)]
            one = shlex.join([*command, matched[0].operation])
            output += [Whole(printable(f"the stages of one: {one}")), ""]
            rest = [o for o in result.operations if o.matched < o.requests]
            output += [f"{title(o)}: {requests(o, begun)}" for o in rest]
        else:
            for o in result.operations:
                output += [*operation(o, unit, overhead, begun), ""]
            output += _partly(matched)
    while output and not output[-1]:
        output.pop()
    output += calls(result, unit)
    output += ["", *cost(result, overhead), *ring(result.operations)]
    output += handed(result.operations, command[2:])
    kernel = {code.value for code in OF_THE_KERNEL}
    for m in result.joined:
        if m.subject.get("cause") in kernel:
            continue
        output += prose(printable(m.what)) + prose(f"why: {printable(m.why)}", "  ", "    ")
        output += ways_out(m.fix, "  ") if m.fix else []
    output += footer(result.facts)
    return lines(output)


def calls(result: Stages, unit: str = "") -> list[str]:
    """Return a line for each system call, with its time in requests and outside; in an overview,
    only for those with much time outside."""
    whole = sum(c.total_ns for c in result.calls)
    least = _LEAST * whole if len(result.operations) > 1 and not result.by else 0
    shown = [c for c in result.calls if c.rest_ns and c.rest_ns >= least]
    if not shown:
        return cached(result, unit)
    head = ("system calls" + (f" by {result.by}" if result.by else ""), "calls", "total")
    rows: list[Sequence[str]] = [(*head, "p50", "in requests", "outside")]
    for c in shown:
        name = c.syscall + (f" {_key(c.key, result.by)}" if result.by else "")
        over = ">" if c.least_ns is not None else ""
        times = (duration(ns, unit) for ns in (c.in_requests_ns, c.rest_ns))
        p50 = at_least(c.p50_ns, unit, c.least_ns)
        rows.append((name, number(c.calls), over + duration(c.total_ns, unit), p50, *times))
    output = ["", *table(rows, "<>>>>>"), "outside of requests:"]
    for c in shown:
        name = c.syscall + (f" {_key(c.key, result.by)}" if result.by else "")
        output += prose(f"{name}: {outside(c, unit)}", "  ", "    ")
    return output + cached(result, unit)


def cached(result: Stages, unit: str = "") -> list[str]:
    """Return the system calls that made no request, with their number and p50."""
    found = []
    for c in sorted(result.calls, key=lambda c: -c.cached.calls if c.cached else 0):
        if c.cached:
            name = c.syscall + (f" {_key(c.key, result.by)}" if result.by else "")
            times = f"p50 {duration(c.cached.p50_ns, unit)}, max {duration(c.cached.max_ns, unit)}"
            found.append(f"{name} {number(c.cached.calls)} of {number(c.calls)} ({times})")
    return ["", *wrapped([f"without a request: {found[0]}", *found[1:]], "")] if found else []


def outside(c: MountCalls, unit: str = "") -> str:
    """Return the time outside of requests by what callers did, longest first."""
    rows = sorted(c.outside_ns.items(), key=lambda row: -row[1])
    return ", ".join(f"{OUTSIDE[name]} {duration(ns, unit)}" for name, ns in rows)


def title(o: OperationStages) -> str:
    """Return the operation's name, marked if its callers do not wait."""
    return o.operation if o.waits or not o.timed else f"{o.operation} (asynchronous)"


def requests(o: OperationStages, begun: bool = True) -> str:
    """Return e.g. "1,796 requests, 1,795 matched, 1 not answered by the end"."""
    count = plural(o.requests, "request")
    if o.matched == o.requests:
        return count + ", all matched"
    # A recording that holds no begin at all is limited to the daemon: its warnings say so.
    words = REASONS if begun else {**REASONS, "before": "without their begin"}
    reasons = [f"{number(n)} {words[reason]}" for reason, n in o.unmatched.items()]
    return ", ".join([count, f"{number(o.matched)} matched", *reasons])


def operation(
    o: OperationStages, unit: str = "", overhead: bool = False, begun: bool = True
) -> list[str]:
    """Return a line for each stage of the operation, with a bar at its place in the total."""
    heading = f"{title(o)}: {requests(o, begun)}"
    if not o.timed:
        return [heading]
    rows: list[Sequence[str]] = [("", "mean", "p50", "p99", "max", "share", _column(overhead))]
    places: dict[int, int] = {}
    before = 0
    for stage in o.stages:
        places.setdefault(stage.total_ns, len(rows))
        rows.append((*figures(stage, o, unit), _last(stage, o, before, overhead)))
        before += stage.total_ns
        rows += [
            ("  " + name, mean, "", "", "", share, "")
            for name, mean, share in parts(stage, o, unit)
        ]
    last = duration(o.probes_ns / o.timed) if overhead and o.probes_ns is not None else ""
    rows.append((*total(o, unit), last))
    lines = table(rows, "<>>>>>>" if overhead else "<>>>>><", indent="  ")
    largest = max(stage.total_ns for stage in o.stages)
    lines[places[largest]] = Whole(f"{BOLD}{lines[places[largest]]}{PLAIN}")
    return [heading, *lines, *_disks(o, unit)]


def _disks(o: OperationStages, unit: str) -> Iterator[str]:
    """Yield the files on disks for which the daemon waited, most time first."""
    rows = sorted(o.disk_ns.items(), key=lambda row: (-row[1], row[0]))
    for place, ns in rows[:_MOST_DISKS]:
        name = printable(place) or "a file that is not known"
        what = f"the daemon waited for {name}: {duration(ns / o.timed, unit)}"
        yield from prose(f"{what}, {share(ns, o.total_ns)}", "  ", "    ")
    if len(rows) > _MOST_DISKS:
        rest = sum(ns for _, ns in rows[_MOST_DISKS:])
        what = f"and for {plural(len(rows) - _MOST_DISKS, 'other file')}"
        yield f"  {what}: {duration(rest / o.timed, unit)}, {share(rest, o.total_ns)}"


def _column(overhead: bool) -> str:
    return "tracer" if overhead else ""


def _last(stage: Stage, o: OperationStages, before: int, overhead: bool) -> str:
    if not overhead:
        return _place(before, stage.total_ns, o.total_ns)
    return "-" if stage.probes_ns is None else duration(stage.probes_ns / o.timed)


def _partly(operations: Iterable[OperationStages]) -> list[str]:
    operations = list(operations)
    notes = []
    if any(stage.requests < o.timed for o in operations for stage in o.stages):
        notes.append("(n): only n requests had it; the others count with 0")
    if any(o.least_ns is not None for o in operations):
        notes.append("> at least: requests without an answer count until they were over")
    return notes + unsplit(sum(stage.unsplit_ns for o in operations for stage in o.stages))


def _place(before: int, total: int, whole: int) -> str:
    """Return a bar that starts at the end of the previous stage."""
    if not whole or not total:
        return ""
    start = _BAR * before // whole
    start = min(start, _BAR - 1)
    end = -(-_BAR * (before + total) // whole)
    return " " * start + "█" * max(end - start, 1) if total * 50 >= whole else " " * start + "▏"


def figures(stage: Stage, o: OperationStages, unit: str = "") -> list[str]:
    """Return the stage's name, mean, p50, p99, max and share."""
    name = name_of(stage.name)
    if stage.requests < o.timed:
        name += f" ({number(stage.requests)})"
    times = (stage.mean_ns, stage.p50_ns, stage.p99_ns, stage.max_ns)
    return [name, *(duration(ns, unit) for ns in times), share(stage.total_ns, o.total_ns)]


def parts(stage: Stage, o: OperationStages, unit: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the name of each part of a stage, its mean and its share of the total."""
    for part, ns in stage.parts_ns.items():
        if ns:
            yield PARTS[part], duration(ns / o.timed, unit), share(ns, o.total_ns)


def total(o: OperationStages, unit: str = "") -> list[str]:
    """Return the total's row, as figures() does for a stage."""
    mean = (">" if o.least_ns is not None else "") + duration(o.mean_ns, unit)
    times = [at_least(ns, unit, o.least_ns) for ns in (o.p50_ns, o.p99_ns, o.max_ns)]
    return ["total", mean, *times, "100.0 %"]


def _lines(operations: Iterable[OperationStages], by: str, unit: str) -> list[str]:
    """Return a line per operation or group, with its stages in one bar."""
    operations = list(operations)
    rows: list[Sequence[str]] = [(by, "requests", "total", "mean", "p99", "")]
    for o in operations:
        name = _key(o.key, by) if by else title(o)
        name += f" ({printable(o.start_function)})" if o.start_function else ""
        over = ">" if o.least_ns is not None else ""
        times = [over + duration(ns, unit) for ns in (o.total_ns, o.mean_ns)]
        times.append(at_least(o.p99_ns, unit, o.least_ns))
        rows.append((name, number(o.timed), *times, _stacked(o)))
    return [*([title(operations[0])] if by else []), *table(rows, "<>>>><", "  " if by else "")]


def _key(key: str | int | None, by: str) -> str:
    if key is None:
        return "(unknown)"
    if by == "size" and isinstance(key, int):
        size, name = next(
            ((n, name) for n, name in ((1 << 20, "MiB"), (1 << 10, "KiB")) if key >= n), (1, "B")
        )
        return f"from {key // size} {name}"
    return str(key) or "(no name)"


def _stacked(o: OperationStages) -> str:
    return stacked(((stage.name, stage.total_ns) for stage in o.stages), o.total_ns, _LONG_BAR)


def stacked(stages: Iterable[tuple[str, int]], total: int, columns: int) -> str:
    """Return the total as a bar of the stages' letters; short stages may have none."""
    bar = ""
    before = 0
    for name, ns in stages:
        before += ns
        letters = "".join(WORDS[part][2] for part in name.split("+"))
        length = round(columns * before / total) - len(bar) if total else 0
        bar += (letters * length)[:length]
    return bar


def _legend(operations: Iterable[OperationStages]) -> list[str]:
    return legend(stage.name for o in operations for stage in o.stages)


def legend(stages: Iterable[str]) -> list[str]:
    """Return the letters of stages in bars."""
    used = {name for stage in stages for name in stage.split("+")}
    if "vfs_entry" in used:
        used.discard("between")
    return prose(", ".join(f"{w[2]} {w[0]}" for name, w in WORDS.items() if name in used))


def cost(result: Stages, overhead: bool) -> list[str]:
    """Return the overhead of recording per request, if requested or if the total is unknown."""
    took = result.facts.took
    if result.facts.corrected:
        return []  # the footer reports it
    waits = [o for o in result.operations if o.waits and o.timed and o.probes_ns is not None]
    if result.event_cost_ns is None or not waits:
        return [] if took else ["what recording itself added is not known"]
    if took and not overhead:
        return []  # the footer reports it
    each = duration(sum(o.probes_ns or 0 for o in waits) / sum(o.timed for o in waits))
    measured = result.facts.event_cost_ns is not None
    about = "about" if measured else "at least"
    output = [f"recording adds {about} {each} to each synchronous request"]
    if not overhead:
        return [f"{output[0]} (--overhead)"]
    if measured:
        output.append(f"  {duration(result.event_cost_ns)} for each event, measured as it was made")
    else:
        output.append(
            f"  {duration(result.event_cost_ns)} for each event: the least time seen between a "
            "request's end and the waking of its caller; more where stacks are taken"
        )
    if result.facts.pair_cost_ns is not None:
        output.append(f"  {duration(result.facts.pair_cost_ns)} for the two probes of a callback")
    elif result.facts.probe_cost_ns is not None:
        output.append(f"  {duration(result.facts.probe_cost_ns)} at least for those of a callback")
    if took:
        output.append("  the remaining cost is outside the stages: stacks, and events of who waits")
    return output


def ring(operations: Iterable[OperationStages]) -> list[str]:
    """Return the number of requests by io_uring, unless it is 0."""
    n = sum(o.ring for o in operations)
    if not n:
        return []
    return [f"{plural(n, 'request')} went by io_uring"]


def handed(operations: Iterable[OperationStages], of: Sequence[str] = ()) -> list[str]:
    """Explain why the daemon's time is not split into on CPU and blocked.

    ``of``: options that name the recording."""
    operations = list(operations)
    n, timed = sum(o.handed for o in operations), sum(o.timed for o in operations)
    if not n:
        return []
    flame = shlex.join(["fusetools", "flame", "--requests", *of])
    return [
        f"{number(n)} of {plural(timed, 'request')} went from one thread of the daemon to another",
        "  which threads worked on them, and whether they ran or waited, cannot be known",
        *ways_out(f"{flame}   # the threads' waits, by who woke whom", "  "),
    ]
