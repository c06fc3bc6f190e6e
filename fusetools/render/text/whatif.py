"""fusetools whatif as text."""

from __future__ import annotations

from fusetools.figures import duration, number, plural, share
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing
from fusetools.render.text.layout import lines, prose, table
from fusetools.results.whatif import MountReplay, WhatIf


def render(result: WhatIf) -> str:
    output: list[str] = []
    for mount in result.mounts:
        output += [*_mount(mount, result), ""]
    if not output:
        output = ["no requests", ""]
    elif any(mount.unknown is None for mount in result.mounts):
        output += [*prose(_assumed(result)), ""]
    return lines([*output, *footer(result.facts), *missing(result.facts.missing, ("request",))])


def _mount(m: MountReplay, result: WhatIf) -> list[str]:
    change = printable(" ".join(result.change))
    name = printable(m.mount)
    if m.unknown is not None:
        return prose(f"{name}: {m.unknown.text}")
    assert m.waited_ns is not None and m.low_ns is not None and m.high_ns is not None
    less = 1 - m.waited_ns / m.recorded_ns
    how = f"{share(abs(less), 1)} {'less' if less >= 0 else 'more'}"
    bounds = f"{duration(m.low_ns)} to {duration(m.high_ns)}"
    output = prose(
        f"{name}: with {change}, callers would wait about {duration(m.waited_ns)} "
        f"({bounds}) instead of {duration(m.recorded_ns)}: {how}"
    )
    if m.saved:
        output += prose(f"{plural(m.saved, 'request')} of {number(m.requests)} would not be made")
    rows = [("", "requests", "recorded", change)]
    rows += [
        (row.operation, number(row.requests), duration(row.recorded_ns), duration(row.waited_ns))
        for row in m.operations
    ]
    output += ["", *table(rows, "<>>>", "  "), ""]
    output += prose(
        f"recorded: {plural(m.callers, 'caller')}, {plural(m.threads, 'daemon thread')}; a replay "
        f"without the change gives {duration(m.replayed_ns)}"
    )
    if m.left_out:
        output += prose(f"left out: {plural(m.left_out, 'request')} whose reading was not seen")
    return output


def _assumed(result: WhatIf) -> str:
    cpus = "any number of CPUs" if result.cpus is None else plural(result.cpus, "CPU")
    return (
        "assumed: the daemon needs as long for each request as recorded, and its threads do not "
        f"wait for each other; {cpus} without other load"
    )
