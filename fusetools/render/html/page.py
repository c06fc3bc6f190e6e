"""A report as one HTML page, without network access, readable without scripts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fusetools import __version__
from fusetools.figures import duration, number, plural
from fusetools.render.html import compare as compare_html
from fusetools.render.html import count as count_html
from fusetools.render.html import diff as diff_html
from fusetools.render.html import errors as errors_html
from fusetools.render.html import flame as flame_html
from fusetools.render.html import hist as hist_html
from fusetools.render.html import queue as queue_html
from fusetools.render.html import slow as slow_html
from fusetools.render.html import stages as stages_html
from fusetools.render.html import sweep as sweep_html
from fusetools.render.html import why as why_html
from fusetools.render.html.markup import Child, Markup, join, listed, missing, tag
from fusetools.render.text.footer import taken
from fusetools.results.facts import Facts
from fusetools.results.report import Recorded, Report

# No network access. Only the scripts in the flame graphs' frames run.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def render(report: Report) -> str:
    """Return the whole page."""
    own: list[tuple[str, Markup]] = []  # (title, content) of a recording or a sweep
    own += [
        (str(recorded.path), _recorded(recorded, f"part-{i}"))
        for i, recorded in enumerate(report.recordings, 1)
    ]
    own += [(str(sweep.path), sweep_html.render(sweep)) for sweep in report.sweeps]
    parts = [(f"part-{i}", *part) for i, part in enumerate(own, 1)]
    if report.differences is not None:
        names = [title for title, _ in own]
        parts.insert(
            0, ("calls", "Calls side by side", diff_html.render(report.differences, names))
        )
    if report.compared is not None:
        parts.insert(0, ("compared", "Compared", compare_html.render(report.compared)))
    title = f"fusetools report: {', '.join(title for title, _ in own)}"
    body = [tag("h1", title)]
    if len(parts) == 1:
        body += [tag("section", content, id=name) for name, _, content in parts]
    else:
        body.append(tag("nav", [tag("a", title, href=f"#{name}") for name, title, _ in parts]))
        body += [
            tag("section", tag("h2", title), content, id=name) for name, title, content in parts
        ]
    return document(title, body)


def document(title: str, body: Sequence[Markup]) -> str:
    """Return a whole page."""
    footer = tag("footer", f"Made by fusetools {__version__}.")
    css = stages_html.colours() + Path(__file__).with_name("report.css").read_text("utf-8")
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", title),
        tag("style", Markup(css)),
    ]
    whole = tag("html", tag("head", head), tag("body", tag("main", body, footer)), lang="en")
    return f"<!doctype html>\n{whole}\n"


def _recorded(recorded: Recorded, place: str) -> Markup:
    sections: list[tuple[str, Markup]] = [
        ("Where the time goes", stages_html.render(recorded.stages)),
        ("Latency", hist_html.render(recorded.histograms)),
        ("Slowest requests", slow_html.render(recorded.slowest)),
        ("Errors", errors_html.render(recorded.errors)),
        ("Queue", queue_html.render(recorded.queue)),
        ("Flame graphs", flame_html.render(recorded)),
        ("Calls", count_html.render(recorded.counts)),
    ]
    links = []
    parts = [_facts(recorded)]
    for title, content in sections:
        name = f"{place}-{title.split()[0].lower()}"
        links.append(tag("a", title, href=f"#{name}"))
        parts.append(tag("section", tag("h3", title), content, id=name))
    # The conclusion comes first.
    return join(why_html.render(recorded.why), parts[0], tag("nav", links), parts[1:])


def _facts(recorded: Recorded) -> Markup:
    """Return facts about the session and the host, and what is not recorded."""
    session, facts = recorded.session, recorded.counts.facts
    host = session.host
    rows: list[tuple[str, Child]] = []

    def row(name: str, *parts: object) -> None:
        words = [str(part) for part in parts if part not in (None, "")]
        if words:
            rows.append((name, ", ".join(words)))

    if session.command:
        rows.append(("Command", tag("code", shlex.join(session.command))))
    row("Recorded", session.started, f"for {duration(1e9 * facts.seconds)}")
    if session.exit_status:
        row("Exit status", session.exit_status)
    kernel = " ".join(word for word in (host.kernel, host.arch) if word)
    row("Host", f"Linux {kernel}" if kernel else "", f"{host.cpus} CPUs" if host.cpus else "")
    tools = (("fusetools", session.version), ("perf", host.perf), ("trace-cmd", host.trace_cmd))
    row("Recorded by", *(f"{name} {version}" for name, version in tools if version))
    for mount in session.mounts:
        daemon = f"{mount.comm or 'daemon'} {mount.daemon_pid or ''}".strip()
        what = " ".join(word for word in (mount.fstype, mount.source) if word)
        row("Mount", mount.path, what, f"served by {daemon}")
        row("Its limits", *(f"{name} {number(n)}" for name, n in mount.limits.items() if n))
    if not session.made_by_fusetools:
        row("Session", "not made by fusetools: it holds no facts of its own")
    requests = facts.requests
    row("Requests", f"{number(requests.begun)} sent", f"{number(requests.matched)} matched")
    unmatched = recorded.histograms.unmatched
    losses = facts.losses
    row(
        "Not seen",
        plural(unmatched, "unmatched call"),
        plural(losses.lost, "LOST event" if losses.lost else "lost event"),
        f"throttled {plural(losses.throttled, 'time')}" if losses.throttled else "",
    )
    if facts.probe_cost_ns is not None:
        row("Probe cost", f"about {duration(facts.probe_cost_ns)} in each daemon call")
    for line in taken(facts.took):
        row("Cost", line)
    return join(
        listed(rows),
        _warnings(facts),
    )


def _warnings(facts: Facts) -> Markup:
    warnings: list[Markup] = []
    if facts.losses.lost:
        lost = plural(facts.losses.lost, "LOST event")
        warnings.append(tag("p", tag("strong", lost), ": counts are too low"))
    warnings += [tag("p", warning) for warning in facts.losses.warnings]
    whole = [tag("div", tag("strong", "Warning"), warnings, class_="warning")] if warnings else []
    for m in facts.missing:
        whole.append(missing(f"Not recorded: {m.what}", m.why, m.fix))
    return join(whole)
