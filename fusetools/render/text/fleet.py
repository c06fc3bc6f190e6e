"""fusetools fleet as text: outliers, and causes of many recordings."""

from __future__ import annotations

from itertools import groupby

from fusetools.figures import duration, number, plural, share, took
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing
from fusetools.render.text.layout import lines, table
from fusetools.results.fleet import Causes, Outliers

_MOST = 5  # groups of a grouping and a measure
WORDS = {
    "requests": "requests",
    "p50_ns": "median latency",
    "p99_ns": "p99 latency",
    "failed_share": "failed requests",
}


def outliers(result: Outliers) -> str:
    """Return the outliers by grouping and measure, farthest first."""
    output: list[str] = []
    for (by, measure), group in groupby(result.outliers, lambda o: (o.by, o.measure)):
        found = list(group)
        median = shown(found[0].measure, found[0].median)
        output += ["" for _ in output[:1]]
        output.append(f"{WORDS[measure]} by {printable(by)}: most have about {median}")
        rows = [
            (
                "  " + shown(measure, o.value),
                f"({shown(measure, o.low)} to {shown(measure, o.high)})",
                f"{o.times:.3g} times",
                printable(o.label),
            )
            for o in found[:_MOST]
        ]
        output += table(rows, "><><")
        if len(found) > _MOST:
            output.append(f"  and {number(len(found) - _MOST)} others")
    if not output:
        told = any(c.enough for c in result.compared)
        output = ["no outliers" if told else "whether there are outliers cannot be told"]
    output.append("")
    known = [f"{plural(c.groups, 'group')} by {printable(c.by)}" for c in result.compared]
    output.append(f"compared: {', '.join(known)}")
    few = [printable(c.by) for c in result.compared if not c.enough]
    if few:
        output.append(f"too few groups: {', '.join(few)}")
    output += footer(result.facts)
    return lines([*output, *missing(result.facts.missing, ("request",))])


def shown(measure: str, value: float) -> str:
    """Format a measure's value."""
    if measure == "requests":
        return number(round(value))
    return share(value, 1) if measure == "failed_share" else duration(value)


def no_causes(result: Causes) -> str:
    """Return the conclusion where there are no causes."""
    if result.unasked == result.recordings:
        return "why callers waited cannot be told: the files have no findings"
    return "nothing stands out in any recording"


def causes(result: Causes) -> str:
    """Return the findings with their shares."""
    rows = [("SHARE", "TIME", "HOSTS", "RECORDINGS", "CAUSE")]
    rows += [
        (
            share(c.share, 1),
            duration(c.time_ns),
            number(c.hosts),
            number(c.recordings),
            printable(c.code.replace("_", " ")),
        )
        for c in result.causes
    ]
    output = table(rows, ">>>><") if result.causes else [no_causes(result)]
    output.append("")
    if asked := result.recordings - result.unasked:
        output.append(
            f"callers waited {took(result.waited_ns / 1e9)} in {plural(asked, 'recording')}"
        )
    if result.unasked:
        output.append(f"{plural(result.unasked, 'recording')} without findings")
    if not result.causes:
        output.append("next: fusetools fleet DIR outliers")
    output += footer(result.facts)
    return lines([*output, *missing(result.facts.missing, ("request",))])
