"""The page about a fleet: outliers, causes, hosts over time, and the latency of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import groupby, islice

from fusetools.figures import duration, number, plural, share, took
from fusetools.render.html.markup import (
    Child,
    Markup,
    join,
    listed,
    missing,
    note,
    sentence,
    table,
    tag,
)
from fusetools.render.html.page import document
from fusetools.render.html.plots import Cell, Panel, Ticks, heat, histograms
from fusetools.render.text.fleet import WORDS, no_causes, shown
from fusetools.results.fleet import Causes, HostInTime, Outliers, Overview
from fusetools.results.groups import Times

_DAY = 24 * 3600 * 10**9  # ns
_MOST = 5  # outliers by a grouping and a measure
_TICKS = 3  # that fit in a small window


def render(result: Overview) -> str:
    """Return the whole page."""
    title = f"fusetools fleet: {result.facts.name}"
    body = [
        tag("h1", title),
        *_section("Outliers", _outliers(result.outliers)),
        *_section("Why callers waited", _causes(result.causes)),
        _facts(result),
        *_section("Hosts over time", _over_time(result)),
        *_section("Latency of each host", _latency(result.hosts)),
    ]
    return document(title, body)


def _section(title: str, content: Markup) -> list[Markup]:
    return [tag("section", tag("h2", title), content)] if content else []


def _outliers(result: Outliers) -> Markup:
    few = [grouping.by for grouping in result.compared if not grouping.enough]
    notes = [note(f"Too few groups to compare: {', '.join(few)}.")] if few else []
    if not result.outliers:
        told = any(grouping.enough for grouping in result.compared)
        text = "No group differs from most others." if told else "This cannot be told."
        return join(tag("p", text), notes)
    rows = [
        (
            tag("b", outlier.label),
            outlier.by,
            WORDS[outlier.measure],
            shown(outlier.measure, outlier.value),
            shown(outlier.measure, outlier.median),
            f"{outlier.times:.3g}",
        )
        for _, group in groupby(result.outliers, lambda o: (o.by, o.measure))
        for outlier in islice(group, _MOST)
    ]
    left = len(result.outliers) - len(rows)
    if left:
        notes.insert(0, note(f"And {number(left)} others: fusetools fleet DIR outliers."))
    return join(table(("", "by", "measure", "is", "of most", "times"), rows, "<<<>>>"), notes)


def _causes(result: Causes) -> Markup:
    if not result.causes:
        return tag("p", sentence(no_causes(result)))
    rows = [
        (
            share(cause.share, 1),
            duration(cause.time_ns),
            number(cause.hosts),
            number(cause.recordings),
            cause.code.replace("_", " "),
        )
        for cause in result.causes
    ]
    return table(("share", "time", "hosts", "recordings", "cause"), rows, ">>>><")


def _facts(result: Overview) -> Markup:
    facts = result.facts
    requests = facts.requests
    causes = result.causes
    rows: list[tuple[str, Child]] = [
        ("Recordings", f"{number(causes.recordings)} of {facts.host}"),
        ("Recorded", took(facts.seconds)),
        ("Requests", f"{number(requests.begun)} sent, {number(requests.matched)} matched"),
    ]
    if causes.unasked < causes.recordings:
        rows.append(("Waited", f"callers waited {took(causes.waited_ns / 1e9)}"))
    if facts.losses.lost:
        rows.append(("Lost", f"{plural(facts.losses.lost, 'event')}: counts are too low"))
    left_out = [missing(f"Left out: {m.what}", m.why, m.fix) for m in facts.missing]
    return join(listed(rows), left_out)


def _over_time(result: Overview) -> Markup:
    values = [step.p90_ns for host in result.hosts for step in host.steps if step and step.p90_ns]
    if not values:
        return join()
    low, high = math.log(min(values)), math.log(max(values))

    def cell(times: Times | None, at: int) -> Cell | None:
        if not times or not times.p90_ns:
            return None
        strong = (math.log(times.p90_ns) - low) / (high - low) if high > low else 0.5
        when = _when(result.first_ns + at * result.step_ns, result.step_ns)
        figures = f"p50 {duration(times.p50_ns)}, p90 {duration(times.p90_ns)}"
        return Cell(strong, f"{when}: {figures}, {plural(times.count, 'request')}")

    rows = [
        (_name(host), [cell(times, at) for at, times in enumerate(host.steps)])
        for host in result.hosts
    ]
    step = "hour" if result.step_ns < _DAY else "day"
    text = (
        f"Each cell is a host's {step} (UTC); the stronger its colour, the longer its requests' "
        f"p90, from {duration(min(values))} to {duration(max(values))}, by logarithm. "
        "Empty: no requests. "
        "Hosts that differ from most (\u25cf) come first, then those whose requests took most time."
    )
    left = f" {plural(result.others, 'host')} left out." if result.others else ""
    return join(heat(rows, _ticks(result), "hosts over time"), note(text + left))


def _ticks(result: Overview) -> Ticks:
    steps = max((len(host.steps) for host in result.hosts), default=0)
    every = max(math.ceil(steps / _TICKS), 1)
    ticks: list[tuple[float, str]] = []
    date = ""
    for at in range(0, steps, every):
        text = _when(result.first_ns + at * result.step_ns, result.step_ns)
        day, _, hour = text.partition(" ")
        ticks.append((at / steps, hour if hour and day == date else text))
        date = day
    return ticks


def _when(ns: int, step: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, timezone.utc).strftime(
        "%m-%d %H:%M" if step < _DAY else "%Y-%m-%d"
    )


def _latency(hosts: Sequence[HostInTime]) -> Markup:
    panels = [
        Panel(
            join(
                tag("b", _name(host)),
                " ",
                tag("span", plural(host.histogram.count, "request"), class_="dim"),
            ),
            "l-request",
            host.histogram.buckets,
            [(f"p{p}", host.histogram.percentiles_ns[p]) for p in ("50", "99")],
        )
        for host in hosts
        if host.histogram
    ]
    if not panels:
        return join()
    text = (
        "Each histogram is as tall as its fullest bin; each bin is twice as wide as the one before "
        "it. The lines are p50 and p99."
    )
    return join(tag("figure", histograms(panels, "requests of each host")), note(text))


def _name(host: HostInTime) -> str:
    return f"{host.label} \u25cf" if host.outlier else host.label
