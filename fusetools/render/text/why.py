"""fusetools why as text."""

from __future__ import annotations

from fusetools.figures import duration, plural, share
from fusetools.printable import printable
from fusetools.render.text.footer import footer, ways_out
from fusetools.render.text.layout import lines, prose
from fusetools.results.why import Finding, Why


def render(result: Why) -> str:
    output = findings(result)
    for reason in result.unknown:
        output += ["", *prose(f"cannot be known: {printable(reason.text)}", rest="  ")]
        output += ways_out(reason.fix, "  ")
    return lines([*output, "", *footer(result.facts)])


def findings(result: Why) -> list[str]:
    """Return all findings, or that there are none."""
    output: list[str] = []
    for number, finding in enumerate(result.findings, 1):
        output += [""] * bool(output) + _finding(f"{number}. ", finding)
    return output or quiet(result)


def first(result: Why) -> list[str]:
    """Return the most important finding, or that there is none."""
    if not result.findings:
        return quiet(result)
    return prose(sentence(result.findings[0]), rest="  ")


def quiet(result: Why) -> list[str]:
    """Return that nothing was found, and what was looked at."""
    if not result.requests:
        return ["no requests that a caller waited for"]
    text = (
        f"nothing stands out: callers waited {duration(result.waited_ns)} for "
        f"{plural(result.requests, 'request')}; {share(result.ordinary_share, 1)} of it is the "
        f"usual work of requests; looked for {plural(len(result.looked), 'kind')} of causes"
    )
    return prose(text, rest="  ")


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
        output += prose(f"fix: {printable(fix)}", indent, f"{indent}  ")
    return [*output, f"{indent}more: {printable(finding.more)}"]
