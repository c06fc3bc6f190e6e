"""fusetools why as text."""

from __future__ import annotations

import re

from fusetools.figures import duration, plural, share, took
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing, nothing, ways_out
from fusetools.render.text.layout import Whole, lines, prose
from fusetools.results.why import Finding, Why

# A fix that is a command: of fusetools or sysctl, with an option or a negative number first, or
# writing into a file. Other fixes are words.
COMMAND = re.compile("(fusetools|sysctl) |\\S+ -|.* > ")
# Share of the recording below which all waits together are worth a remark: its time goes elsewhere.
SMALL = 0.2


def render(result: Why) -> str:
    output = findings(result)
    for reason in result.unknown:
        output += ["", *prose(f"cannot be known: {printable(reason.text)}", rest="  ")]
        output += ways_out(reason.fix, "  ")
    return lines([*output, "", *footer(result.facts), *missing(result.facts.missing, ("request",))])


def findings(result: Why) -> list[str]:
    """Return all findings, or that there are none."""
    output: list[str] = []
    for number, finding in enumerate(result.findings, 1):
        output += [""] * bool(output) + _finding(f"{number}. ", finding)
    if not output:
        return quiet(result)
    for remark in [*_rest(result), *_elsewhere(result)]:
        output += ["", remark]
    return output


def first(result: Why) -> list[str]:
    """Return the most important finding, or that there is none."""
    if not result.findings:
        return quiet(result)
    return [sentence(result.findings[0]), *_elsewhere(result)]


def quiet(result: Why) -> list[str]:
    """Return that nothing was found, and what was looked at."""
    if not result.requests:
        some = "no requests" if result.facts.removed else "no requests that a caller waited for"
        return nothing(result.facts, some)
    if result.unknown_share > 0.99:
        waited = f"{duration(result.waited_ns)} for {plural(result.requests, 'request')}"
        return [f"no cause can be known: callers waited {waited}", *_elsewhere(result)]
    small = 1 - result.ordinary_share - result.unknown_share
    rest = f", {share(small, 1)} has causes too small to report" if small >= SMALL else ""
    text = (
        f"nothing stands out: callers waited {duration(result.waited_ns)} for "
        f"{plural(result.requests, 'request')}; {share(result.ordinary_share, 1)} of it is the "
        f"usual work of requests{_usual(result)}{rest}; "
        f"looked for {plural(len(result.looked), 'kind')} of causes"
    )
    return [text, *_elsewhere(result)]


def _rest(result: Why) -> list[str]:
    """Return where the waiting is that no finding has, nothing if it is little."""
    left = 1 - sum(finding.share for finding in result.findings)
    if not result.waited_ns or left < SMALL:
        return []
    parts = (
        (result.ordinary_share, f"the usual work of requests{_usual(result)}"),
        (left - result.ordinary_share - result.unknown_share, "smaller causes"),
        (result.unknown_share, "unknown"),
    )
    named = "; ".join(f"{share(part, 1)} {words}" for part, words in parts if part >= 0.01)
    return [f"no finding has {share(left, 1)} of the waiting: {named}"]


def _usual(result: Why) -> str:
    """Return the operations with most of the usual work of requests, in brackets."""
    named = "; ".join(
        f"{share(row.share, 1)} {plural(row.requests, row.operation + ' request')}, "
        f"{duration(row.time_ns // (row.requests or 1))} each"
        for row in result.usual
    )
    return f" ({named})" if named else ""


def _elsewhere(result: Why) -> list[str]:
    """Return that most time passed without the mount, nothing if it did not, or may not have.

    A process that waits for a small part of the recording may have run for that part only.
    """
    whole = result.facts.seconds * 1e9
    if not whole or not result.requests or result.waited_ns > SMALL * whole:
        return []
    part = share(result.waited_ns / whole, 1)
    return [
        f"callers waited for the mount {duration(result.waited_ns)} in all, {part} of the "
        f"{took(result.facts.seconds)} recorded: the rest of the time passed elsewhere"
    ]


def sentence(finding: Finding) -> str:
    return printable(finding.reason.text)


def who(finding: Finding) -> str:
    """Return the processes that waited, with their shares."""
    return ", ".join(
        f"{printable(comm) or 'unknown'} (pid {pid}) {share(part, 1)}"
        for comm, pid, part in finding.callers
    )


def _finding(number: str, finding: Finding) -> list[str]:
    indent = " " * len(number)
    output = prose(sentence(finding), number, indent)
    if finding.callers:
        output += prose(f"who waited: {who(finding)}", indent, f"{indent}  ")
    if finding.sure != "measured":
        output += prose(f"how sure: {finding.sure}", indent, f"{indent}  ")
    for reason in finding.against:
        output += prose(f"against it: {printable(reason.text)}", indent, f"{indent}  ")
    for fix in finding.reason.fix.splitlines():
        line = f"fix: {printable(fix)}"
        # Users copy commands. A change of the mount or of the daemon has words.
        whole = COMMAND.match(fix) is not None
        output += [Whole(indent + line)] if whole else prose(line, indent, f"{indent}  ")
    return [*output, Whole(f"{indent}more: {printable(finding.more)}")]
