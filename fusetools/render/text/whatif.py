"""fusetools whatif as text."""

from __future__ import annotations

from fusetools.figures import duration, number, plural, share
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing, nothing, ways_out
from fusetools.render.text.layout import lines, prose, table
from fusetools.results.whatif import MountReplay, WhatIf

# Share of the time without a CPU from which on that is reported.
_MUCH = 0.1


def render(result: WhatIf) -> str:
    output: list[str] = []
    for mount in result.mounts:
        output += [*_mount(mount, result), ""]
    if not output:
        output = [*nothing(result.facts), ""]
    elif any(mount.unknown is None for mount in result.mounts):
        output += [*prose(_assumed(result)), ""]
    return lines([*output, *footer(result.facts), *missing(result.facts.missing, ("request",))])


def _mount(m: MountReplay, result: WhatIf) -> list[str]:
    change = printable(" ".join(result.change))
    name = printable(m.mount)
    if m.unknown is not None:
        return [*prose(f"{name}: {m.unknown.text}"), *ways_out(m.unknown.fix, "  ")]
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
    if m.no_cpu_ns and m.no_cpu_ns >= _MUCH * m.waited_ns:
        cpus = "CPUs" if result.cpus is None else plural(result.cpus, "CPU")
        output += prose(
            f"CPUs are the limit: for {duration(m.no_cpu_ns)} of that time the daemon would have a "
            f"request and none of the {cpus}"
        )
    if m.left_out:
        output += prose(f"left out: {plural(m.left_out, 'request')} whose reading was not seen")
    return output


def _assumed(result: WhatIf) -> str:
    cpus = "any number of CPUs" if result.cpus is None else plural(result.cpus, "CPU")
    assumed = (
        "assumed: the daemon needs as long for each request as recorded, and its threads do not "
        f"wait for each other; {cpus} without other load"
    )
    if any(change.startswith("max_background=") for change in result.change):
        assumed += (
            "; it has more threads if it needs them and none lacked one when recorded (threads=N: "
            "so many); the kernel reads ahead as recorded (congestion_threshold stays)"
        )
    else:
        assumed += (
            "; waits for pages that asynchronous reads bring are left out (max_background=N "
            "counts them)"
        )
    return assumed
