"""A report as one HTML page: nothing is fetched, and it can be read without scripts."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusetools import __version__
from fusetools.errors import Error
from fusetools.model import (
    LAYERS,
    Counts,
    Differences,
    Errors,
    Facts,
    Histogram,
    Histograms,
    MountQueue,
    OperationStages,
    Queue,
    Request,
    Slowest,
    Stacks,
    Stages,
)
from fusetools.render import flame as flame_text
from fusetools.render import requests as requests_text
from fusetools.render import stages as stages_text
from fusetools.render import text
from fusetools.render.html_measured import compared, sweep
from fusetools.render.markup import (
    Child,
    Markup,
    error,
    join,
    legend,
    listed,
    missing,
    note,
    table,
    tag,
    wide,
)
from fusetools.render.plots import (
    Level,
    Panel,
    Part,
    levels,
    stacked,
)
from fusetools.render.plots import histograms as drawn_histograms
from fusetools.render.text import duration, number, plural

if TYPE_CHECKING:
    from fusetools.report import Recorded, Report

# Of one with fewer calls the table says all.
FEW = 10

# Of flame graphs: frames that are less than so many per cent wide are not in the picture; what has
# more characters is left to fusetools flame.
NARROW = 0.1
LARGE = 3_000_000

# Nothing is asked of the network, and no script runs but those of the flame graphs' own frames.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(report: Report) -> str:
    """The whole page."""
    own: list[tuple[str, Markup]] = []  # of a recording or a sweep: its title, its part
    own += [
        (str(one.path), _recorded(one, f"part-{i}")) for i, one in enumerate(report.recordings, 1)
    ]
    own += [(str(one.path), sweep(one)) for one in report.sweeps]
    parts = [(f"part-{i}", *part) for i, part in enumerate(own, 1)]
    if report.differences is not None:
        names = [title for title, _ in own]
        parts.insert(0, ("calls", "Calls side by side", _differences(report.differences, names)))
    if report.compared is not None:
        parts.insert(0, ("compared", "Compared", compared(report.compared)))
    title = f"fusetools report: {', '.join(title for title, _ in own)}"
    body = [tag("h1", title)]
    if len(parts) == 1:
        body += [tag("section", content, id=name) for name, _, content in parts]
    else:
        body.append(tag("nav", [tag("a", title, href=f"#{name}") for name, title, _ in parts]))
        body += [
            tag("section", tag("h2", title), content, id=name) for name, title, content in parts
        ]
    body.append(tag("footer", f"Made by fusetools {__version__}."))
    css = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", title),
        tag("style", Markup(css)),
    ]
    whole = tag("html", tag("head", head), tag("body", tag("main", body)), lang="en")
    return f"<!doctype html>\n{whole}\n"


# Of a recording


def _recorded(one: Recorded, place: str) -> Markup:
    sections: list[tuple[str, Markup]] = [
        ("Where the time goes", _stages(one.stages)),
        ("Latency", _latency(one.histograms)),
        ("Slowest requests", _slowest(one.slowest)),
        ("Errors", _errors(one.errors)),
        ("Queue", _queue(one.queue)),
        ("Flame graphs", _stacks(one)),
        ("Calls", _counts(one.counts)),
    ]
    links = []
    said = [_facts(one)]
    for title, content in sections:
        name = f"{place}-{title.split()[0].lower()}"
        links.append(tag("a", title, href=f"#{name}"))
        said.append(tag("section", tag("h3", title), content, id=name))
    return join(said[0], tag("nav", links), said[1:])


def _facts(one: Recorded) -> Markup:
    """The session's and the host's; what is not in the recording. Nothing in the session is taken
    on trust."""
    session, facts = one.session.facts, one.counts.facts
    host = session.get("host")
    host = host if isinstance(host, dict) else {}
    rows: list[tuple[str, Child]] = []

    def row(name: str, *parts: Any) -> None:
        words = [str(part) for part in parts if part not in (None, "")]
        if words:
            rows.append((name, ", ".join(words)))

    command = session.get("command")
    if isinstance(command, list) and command:
        rows.append(("Command", tag("code", shlex.join(map(str, command)))))
    row("Recorded", session.get("started"), f"for {duration(1e9 * facts.seconds)}")
    if session.get("exit_status"):
        row("Exit status", session["exit_status"])
    kernel = " ".join(str(host[key]) for key in ("kernel", "arch") if host.get(key))
    cpus = host.get("cpus")
    row("Host", f"Linux {kernel}" if kernel else "", f"{cpus} CPUs" if cpus else "")
    tools = (
        ("fusetools", session.get("fusetools")),
        ("perf", host.get("perf")),
        ("trace-cmd", host.get("trace_cmd")),
    )
    row("Recorded by", *(f"{name} {version}" for name, version in tools if version))
    mounts = session.get("mounts")
    for mount in mounts if isinstance(mounts, list) else ():
        if isinstance(mount, dict):
            daemon = f"{mount.get('comm') or 'daemon'} {mount.get('daemon_pid') or ''}".strip()
            what = [str(mount[key]) for key in ("fstype", "source") if mount.get(key)]
            row("Mount", mount.get("path"), " ".join(what), f"served by {daemon}")
    if not session:
        row("Session", "not made by fusetools: it holds no facts of its own")
    requests = facts.requests
    row("Requests", f"{number(requests.begun)} sent", f"{number(requests.matched)} matched")
    unmatched = one.histograms.unmatched
    losses = facts.losses
    row(
        "Not seen",
        f"{plural(unmatched, 'call')} unmatched" if unmatched else "no call unmatched",
        f"{plural(losses.lost, 'event')} LOST" if losses.lost else "no event lost",
        f"throttled {plural(losses.throttled, 'time')}" if losses.throttled else "",
    )
    if facts.probe_cost is not None:
        row("Probe cost", f"about {duration(facts.probe_cost)} of each call of the daemon's")
    return join(
        listed(rows),
        _warnings(facts),
    )


def _warnings(facts: Facts) -> Markup:
    said: list[Markup] = []
    if facts.losses.lost:
        lost = plural(facts.losses.lost, "event")
        said.append(tag("p", tag("strong", f"{lost} LOST"), ": counts are too low"))
    said += [tag("p", warning) for warning in facts.losses.warnings]
    whole = [tag("div", tag("strong", "Warning"), said, class_="warning")] if said else []
    for m in facts.missing:
        whole.append(missing(f"Not recorded: {m.what}", m.why, m.mend))
    return join(whole)


# Stages


def _stages(result: Stages) -> Markup:
    """Of each operation its requests' time, as a bar and in figures."""
    if not result.operations:
        return tag("p", "No requests.")
    matched = [o for o in result.operations if o.matched]
    names = {stage.name for o in matched for stage in o.stages}
    unmatched = [o for o in result.operations if not o.matched]
    return join(
        _stage_legend(names, stages_text.name_of),
        tag("div", [_operation(o) for o in matched], class_="cards broad"),
        [tag("p", f"{stages_text.title(o)}: {stages_text.requests(o)}.") for o in unmatched],
        note(_sentence(stages_text.cost(result, True)[0])),
        [note(_sentence(line)) for line in stages_text.ring(result.operations)],
        [missing(m.what, m.why, m.mend) for m in result.joined],
    )


def _operation(o: OperationStages) -> Markup:
    parts = [
        Part(
            stage.share,
            _colour(stage.name),
            _letters(stage.name),
            f"{stages_text.name_of(stage.name)} {duration(stage.mean)}",
        )
        for stage in o.stages
    ]
    rows: list[Sequence[Child]] = []
    for stage in o.stages:
        name, mean, *others, share = stages_text.figures(stage, o)
        swatch = tag("span", class_=f"swatch {_colour(stage.name)}")
        rows.append(([swatch, name], mean, share, *others))
        for part, mean, share in stages_text.parts(stage, o):
            rows.append((tag("span", part, class_="within"), mean, share, "", "", ""))
    name, mean, *others, share = stages_text.total(o)
    rows.append([tag("b", figure) for figure in (name, mean, share, *others)])
    title = stages_text.title(o)
    return tag(
        "figure",
        tag("h4", title, tag("span", f" {stages_text.requests(o)}", class_="dim")),
        stacked(parts, f"{title}: stages"),
        table(("", "mean", "share", "p50", "p99", "max"), rows, "<>>>>>"),
    )


def _colour(stage: str) -> str:
    """Its class; of stages that are joined that of the first, paler."""
    first, *others = stage.split("+")
    return f"s-{first} joined" if others else f"s-{first}"


def _letters(stage: str) -> str:
    return "".join(stages_text.WORDS[name][2] for name in stage.split("+"))


def _stage_legend(names: Iterable[str], say: Callable[[str], str]) -> Markup:
    order = [*stages_text.WORDS]
    known = sorted(names, key=lambda name: (order.index(name.split("+")[0]), name))
    return legend((_colour(name), say(name)) for name in known)


def _sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}."


# Latency


def _latency(result: Histograms) -> Markup:
    called = [h for h in result.histograms if h.count]
    if not called:
        return join(tag("p", "No calls."), _never([h.function for h in result.histograms]))
    bodies: list[Markup] = []
    heading = ("calls", "p50", "p90", "p99", "max")
    for operation, group in groupby(called, lambda h: h.operation):
        rows = [tag("tr", tag("th", operation or "other", colspan=6, scope="rowgroup"))]
        for h in group:
            figures = [duration(h.percentiles.get(p)) for p in ("50", "90", "99")]
            numbers = [number(h.count), *figures, duration(h.max)]
            name = tag("td", tag("span", h.layer, class_="layer"), " ", h.function)
            rows.append(tag("tr", name, [tag("td", n, class_="n") for n in numbers]))
        bodies.append(tag("tbody", rows))
    names = [tag("th", name, class_="n") for name in heading]
    head = tag("thead", tag("tr", tag("th"), names))
    whole = tag("table", head, bodies, class_="summary")
    return join(
        wide(whole),
        [note(_sentence(line)) for line in text.cost(result.facts, {h.layer for h in called})],
        _never([h.function for h in result.histograms if not h.count]),
        _histograms(called),
    )


def _histograms(called: Sequence[Histogram]) -> Markup:
    """Of each operation, layer by layer over the same times."""
    cards = []
    for operation, group in groupby(called, lambda h: h.operation):
        shown = [h for h in group if operation and h.count >= FEW]
        if not shown:
            continue
        panels = [
            Panel(_heading(h), f"l-{h.layer}", h.buckets, _marks(h.percentiles)) for h in shown
        ]
        cards.append(tag("figure", tag("h4", operation), drawn_histograms(panels, operation)))
    if not cards:
        return join()
    return join(
        tag("div", cards, class_="cards"),
        tag(
            "p",
            "Each histogram is as tall as its fullest bin; each bin is twice as long as the one "
            "before it. The lines are p50 and p99. Not drawn: what has fewer than "
            f"{FEW} calls, and what belongs to no operation.",
            class_="note",
        ),
    )


def _heading(h: Histogram) -> Markup:
    return join(
        tag("span", class_=f"swatch l-{h.layer}"),
        tag("b", h.layer),
        f" {h.function} ",
        tag("span", plural(h.count, "call"), class_="dim"),
    )


def _marks(percentiles: dict[str, int]) -> list[tuple[str, int]]:
    return [(f"p{p}", percentiles[p]) for p in ("50", "99") if p in percentiles]


def _never(functions: Sequence[str]) -> Markup:
    if not functions:
        return join()
    return tag("p", f"Never called: {', '.join(sorted(functions))}.", class_="note")


# Requests


def _slowest(result: Slowest) -> Markup:
    if not result.requests:
        return tag("p", "No requests.")
    longest = max(r.duration for r in result.requests) or 1
    rows = [_slow(r, longest) for r in result.requests]
    said = [
        tag("ol", rows, class_="slowest"),
        _stage_legend(
            {name for r in result.requests for name, _ in _in_request(r)}, stages_text.short
        ),
    ]
    if result.guessed and any(r.path for r in result.requests):
        said.append(
            tag(
                "p",
                "Names of files are told by what callers asked for next, since the recording does "
                "not hold which inodes lookups were answered with (one made now does).",
                class_="note",
            )
        )
    return join(said)


def _slow(r: Request, longest: int) -> Markup:
    parts = []
    left = r.duration
    for name, ns in _in_request(r):
        drawn = min(ns, left)  # a stage may be joined to one after the request's end
        left -= drawn
        said = f"{stages_text.short(name)} {duration(ns)}"
        parts.append(Part(drawn / (r.duration or 1), _colour(name), _letters(name), said))
    details = [", ".join(parts) for parts in requests_text.told(r) if parts]
    what = requests_text.what(r, 4096)
    unique = "" if r.unique is None else f" request {r.unique}"
    return tag(
        "li",
        tag(
            "p",
            tag("b", duration(r.duration)),
            f" {what}",
            tag("span", unique, class_="dim"),
            class_="what",
        ),
        stacked(parts, f"{what}: its stages", r.duration / longest, 12) if parts else join(),
        [tag("p", line, class_="detail") for line in details],
    )


def _in_request(r: Request) -> list[tuple[str, int]]:
    """The stages that make up its duration."""
    return [stage for stage in r.stages if stage[0].split("+")[0] in requests_text.IN_REQUEST]


def _errors(result: Errors) -> Markup:
    rows: list[Sequence[str]] = []
    for o in result.operations:
        counts = list(o.errors)
        if o.negative:
            counts = sorted([*counts, ("no such file", o.negative)], key=lambda e: -e[1])
        for i, (name, n) in enumerate(counts):
            first = (o.operation, number(o.requests)) if i == 0 else ("", "")
            rows.append((*first, name, number(n), requests_text.share(n, o.requests)))
    plain = [o for o in result.operations if not (o.errors or o.negative)]
    heading = ("operation", "requests", "answered", "count", "share")
    said = [table(heading, rows, "<><>>")] if rows else []
    if plain:
        names = ", ".join(f"{o.operation} {number(o.requests)}" for o in plain)
        said.append(tag("p", f"Without an error: {names}."))
    for o in result.operations:
        if o.operation == "lookup":
            said += [tag("p", line.strip().capitalize()) for line in requests_text.lookups(o)]
    return join(said) if said else tag("p", "No requests.")


def _queue(result: Queue) -> Markup:
    return join(map(_mount, result.mounts)) if result.mounts else tag("p", "No requests.")


def _mount(m: MountQueue) -> Markup:
    whole = m.whole
    served = f"{plural(m.requests, 'request')}, served by {plural(m.threads, 'thread')}"

    def level(name: str, kind: str, values: Sequence[tuple[float, int]], top: float) -> Level:
        mean, most = values[0]
        figures = f"mean {number(mean)}, most {number(most)}; the height is {number(top)}"
        swatch = tag("span", class_=f"swatch {kind}")
        heading = join(swatch, tag("b", name), " ", tag("span", figures, class_="dim"))
        return Level(heading, kind, values[1:], top)

    every = [whole, *m.parts]
    queued = [(part.mean_queued, part.most_queued) for part in every]
    busy = [(part.mean_busy, part.most_busy) for part in every]
    shown = [
        level("requests in the queue", "s-queue", queued, max(mean for mean, _ in queued)),
        level("threads at work", "s-daemon", busy, m.threads),
    ]
    verdict = [tag("p", " ".join(line.strip() for line in requests_text.verdict(m)))]
    return tag(
        "figure",
        tag("h4", f"{m.mount}: {served}"),
        verdict,
        levels(shown, m.start, m.end, m.mount),
        note(f"Each bar is the mean of 1/{len(m.parts)} of the time."),
    )


# Flame graphs


def _stacks(one: Recorded) -> Markup:
    return join([_flame(result, str(one.path)) for result in one.stacks.values()])


_OPTIONS = {"off-cpu": " --offcpu", "requests": " --requests"}


def _flame(result: Stacks | Error, path: str) -> Markup:
    if isinstance(result, Error):
        return error(result)
    if not result.stacks:
        return error(Error(*flame_text.nothing(result, False)))
    title = flame_text.what(result)
    try:
        picture = flame_text.picture(result, None, "flame.svg", least=NARROW)
        interactive = flame_text.picture(result, None, "flame.html")
    except Error as failed:
        return error(failed)
    own = f"fusetools flame{_OPTIONS.get(result.graph, '')} -i {shlex.quote(path)}"
    if len(picture) > LARGE:
        return missing(f"{title}: not drawn", "too large for this page", own)
    # In an img no script of the picture runs; the page is in a frame of its own, which is
    # nobody's: it cannot reach what is around it.
    source = "data:image/svg+xml;base64," + base64.b64encode(_still(picture).encode()).decode()
    tall = min(max(int(_height(picture)), 420), 900)
    frame = tag(
        "iframe", sandbox="allow-scripts", srcdoc=Markup(interactive), title=title, height=tall
    )
    return tag(
        "figure",
        tag("h4", title),
        tag("p", flame_text.summary(result), class_="dim"),
        wide(tag("img", class_="flame", src=source, alt=title)),
        [note(line) for line in flame_text.told(result)],
        tag("details", tag("summary", "Search and zoom"), frame, class_="screen")
        if len(interactive) <= LARGE
        else missing("To search and zoom: not here", "too large for this page", own),
    )


def _height(svg: str) -> float:
    found = re.search(r'<svg[^>]* height="(\d{1,6})', svg)
    return float(found[1]) if found else 600.0


def _still(svg: str) -> str:
    """Without its script, which would not run, and the button for it."""
    svg = re.sub(r"<script.*?</script>", "", svg, flags=re.DOTALL)
    return re.sub(r'<text id="search".*?</text>', "", svg)


# Calls


def _counts(result: Counts) -> Markup:
    called = [c for c in result.counts if c.count]
    rows = [
        (
            # A system call is counted by the request that it made.
            f"{c.function} ({c.operation})" if c.layer == "syscall" else c.function,
            c.layer,
            number(c.count),
        )
        for c in called
    ]
    return join(
        table(("function", "layer", "calls"), rows, "<<>") if rows else tag("p", "No calls."),
        _never([c.function for c in result.counts if not c.count]),
    )


def _differences(result: Differences, sides: Sequence[str]) -> Markup:
    said = []
    for layer in LAYERS:
        rows = [
            (
                f"{d.function} ({d.operation})" if layer == "syscall" else d.function,
                number(d.a.count),
                number(d.b.count),
                number(d.change, "+") if d.change else "",
                text.percent(d.percent) if d.change else "",
                duration(d.a.percentiles.get("50")),
                duration(d.b.percentiles.get("50")),
                text.percent(d.slower_percent("50")),
            )
            for d in result.differences
            if d.layer == layer
        ]
        if rows:
            heading = (layer, "A", "B", "change", "%", "p50 A", "p50 B", "%")
            said.append(table(heading, rows, "<>>>>>>>"))
    names = f"A: {sides[0]}, B: {sides[1]}; the change is B less A."
    return join(tag("p", names), said or tag("p", "No calls in either."))
