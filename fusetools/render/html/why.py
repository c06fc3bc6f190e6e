"""Report section: findings."""

from __future__ import annotations

from fusetools.figures import share
from fusetools.render.html.markup import Child, Markup, join, tag
from fusetools.render.text.why import quiet, who
from fusetools.results.why import Finding, Why


def render(result: Why) -> Markup:
    """Return all findings, or that there are none."""
    if not result.findings:
        text = " ".join(line.strip() for line in quiet(result))
        return join(tag("h3", "Findings"), tag("p", text))
    rows = [_finding(finding) for finding in result.findings]
    return join(tag("h3", "Findings"), tag("ol", rows, class_="findings"))


def _finding(finding: Finding) -> Markup:
    notes: list[Child] = []
    if finding.callers:
        notes.append(f"who waited: {who(finding)}")
    notes += [f"against it: {reason.text}" for reason in finding.against]
    notes += [join("fix: ", tag("code", fix)) for fix in finding.reason.fix.splitlines()]
    notes.append(join("more: ", tag("code", finding.more)))
    rest = [tag("br"), *[join(note, tag("br")) for note in notes[:-1]], notes[-1]]
    return tag("li", tag("b", finding.reason.text), rest, title=share(finding.share, 1))
