"""fusetools report: its figures equal the commands', and hostile names cannot change the page."""

from __future__ import annotations

import base64
import json
import re
import shutil
import time
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import data
import pytest
from fixtures import Driver, Invoke
from test_sweep import made

from fusetools.errors import Error
from fusetools.experiments import sweep
from fusetools.figures import duration, number
from fusetools.render import picture
from fusetools.render.html import flame as flame_html
from fusetools.render.html import slow as slow_html
from fusetools.render.html import stages as stages_html
from fusetools.render.html.hist import FEW
from fusetools.render.html.markup import Markup, join, tag
from fusetools.render.html.page import render
from fusetools.render.html.plots import Panel, Place, Series, histograms, points
from fusetools.render.text import words
from fusetools.report import report
from fusetools.results.flame import Stacks
from fusetools.results.report import Report
from fusetools.session import read

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples/recordings/demo.data"
HOSTILE = "</script><img src=x onerror=alert(1)>'\"&lt;\x1b[2J\u202e"

VOID = {"meta", "img", "input", "br", "hr", "col"}


class Page(HTMLParser):
    """A parsed page: its elements with their attributes' names, its tables, its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.section = ""
        self.texts: list[str] = []
        self.sections: dict[str, str] = {}  # by the last part of their name: their text
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, *(key for key, _ in attributes)))
        self.attributes += [(key, value or "") for key, value in attributes]
        if name == "section":
            self.section = dict(attributes)["id"] or ""
        elif name == "table":
            self.tables.append([])
        elif name == "tr":
            self.tables[-1].append([])
        elif name in ("td", "th"):
            self.tables[-1][-1].append("")
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name  # each is closed, in its order

    def handle_data(self, text: str) -> None:
        if "style" in self.open:
            return
        self.texts.append(text)
        self.sections[self.section] = self.sections.get(self.section, "") + text
        if self.open[-1:] != ["title"] and ("td" in self.open or "th" in self.open):
            self.tables[-1][-1][-1] += text

    def rows(self) -> list[tuple[str, ...]]:
        return [tuple(" ".join(c.split()) for c in row) for t in self.tables for row in t]

    def frames(self) -> list[str]:
        return [value for key, value in self.attributes if key == "srcdoc"]


@pytest.fixture(scope="module", params=["demo", "client"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "demo":
        return DEMO
    return data.unpack("cernvmfs-6.1/perf.data.zst", tmp_path_factory.mktemp("client") / "c.data")


@pytest.fixture(scope="module")
def page(recording: Path) -> Page:
    return Page(render(report([recording])))


def answer(run: Invoke, *args: str) -> Any:
    return json.loads(run(*args, "--json").stdout)


# The figures are the commands'


def test_latency(page: Page, recording: Path, run: Invoke) -> None:
    said = answer(run, "hist", "-i", str(recording))
    called = [h for h in said["histograms"] if h["count"]]
    rows = [(f"{h['layer']} {h['function']}", h["until_reply"] or h) for h in called]
    rows += [("after reply", h["after_reply"]) for h in called if h["after_reply"]]
    wanted = [
        (
            name,
            number(h["count"]),
            *(duration(h["percentiles_ns"][p]) for p in ("50", "90", "99")),
            duration(h["max_ns"]),
        )
        for name, h in rows
    ]
    assert wanted
    assert Counter(row for row in page.rows() if row in set(wanted)) == Counter(wanted)
    bins = Counter(
        f"{duration(low)} to {duration(high + 1)}: {number(n)}"
        for h in called
        if h["operation"] and h["count"] >= FEW
        for low, high, n in (bucket.values() for bucket in (h["until_reply"] or h)["buckets"])
        if n
    )
    assert bins
    drawn = Counter(text for text in page.texts if re.fullmatch(r"[\d.]+ \w+ to .*: [\d,]+", text))
    assert drawn == bins


def test_stages(page: Page, recording: Path, run: Invoke) -> None:
    said = answer(run, "stages", "-i", str(recording))
    wanted = []
    for o in said["operations"]:
        if not o["matched"]:
            continue
        for s in o["stages"]:
            times = (duration(s[f"{key}_ns"]) for key in ("p50", "p99", "max"))
            wanted.append((duration(s["mean_ns"]), f"{100 * s['share']:.1f} %", *times))
        times = (duration(o[f"{key}_ns"]) for key in ("p50", "p99", "max"))
        wanted.append((duration(o["mean_ns"]), "100.0 %", *times))
    assert wanted
    assert not Counter(wanted) - Counter(row[1:] for row in page.rows())


def test_counts(page: Page, recording: Path, run: Invoke) -> None:
    said = answer(run, "count", "-i", str(recording))
    wanted = [
        (
            f"{c['function']} ({c['operation']})" if c["layer"] == "syscall" else c["function"],
            c["layer"],
            number(c["count"]),
        )
        for c in said["counts"]
        if c["count"]
    ]
    found = next(t for t in page.tables if t[0] == ["function", "layer", "calls"])
    assert [tuple(row) for row in found[1:]] == wanted
    requests = said["recording"]["requests"]
    assert f"{number(requests['begun'])} sent, {number(requests['matched'])} matched" in page.texts


def test_requests(page: Page, recording: Path, run: Invoke) -> None:
    slow = answer(run, "slow", "-n", "10", "-i", str(recording))["requests"]
    text = page.sections["part-1-slowest"]
    at = [text.index(f"{duration(r['duration_ns'])} {r['operation']}") for r in slow]
    assert len(at) == 10 and at[0] == min(at)
    for r in slow:
        assert f"request {r['unique']}" in text
    errors = answer(run, "errors", "-i", str(recording))["operations"]
    text = page.sections["part-1-errors"]
    for o in errors:
        if o["failed"]:
            ((name, n),) = (error.values() for error in o["errors"])
            share = f"{100 * n / o['requests']:.1f} %"
            row = (o["operation"], number(o["requests"]), name, number(n), share)
            assert row in page.rows()
        elif o["negative"]:
            share = f"{100 * o['negative'] / o['requests']:.1f} %"
            row = (
                o["operation"],
                number(o["requests"]),
                "no such file",
                number(o["negative"]),
                share,
            )
            assert row in page.rows()
        else:
            assert f"{o['operation']} {number(o['requests'])}" in text
    for m in answer(run, "queue", "-i", str(recording))["mounts"]:
        text = page.sections["part-1-queue"]
        assert f"{m['mount']}: {number(m['requests'])} requests" in text
        for which in ("queued", "busy"):
            mean, most = (m["whole"][f"{key}_{which}"] for key in ("mean", "most"))
            assert f"mean {number(mean)}, most {number(most)};" in text
            means = [f"mean {number(part[f'mean_{which}'])}, most" for part in m["parts"]]
            assert all(text.count(said) >= means.count(said) for said in means if "0," not in said)


def test_flame_graphs(page: Page, recording: Path, run: Invoke, tmp_path: Path) -> None:
    text = page.sections["part-1-flame"]
    sampled = recording == DEMO
    for option in ("--offcpu", "--requests", *([""] if sampled else [])):
        said = answer(run, "flame", *option.split(), "-i", str(recording))
        noun = {"--offcpu": "wait", "--requests": "request"}.get(option, "sample")
        assert f"{duration(said['total_ns'])} in {number(said['count'])} {noun}s" in text
    missing = "holds no samples of what ran (none were recorded). fix: fusetools record"
    assert (missing in text) != sampled
    # The report tells where functions have their names from.
    named = "the recording" if sampled else "user functions unnamed"
    assert text.count(named) >= 2
    sources = [value for key, value in page.attributes if key == "src"]
    assert len(sources) == 2 + sampled
    for source in sources:
        kind, picture = source.split(",")
        assert kind == "data:image/svg+xml;base64"
        drawn = ElementTree.fromstring(base64.b64decode(picture))
        assert not [e for e in drawn.iter() if e.tag.endswith("script")]
        assert len([e for e in drawn.iter() if e.tag.endswith("rect")]) > 20


# A page of its own


def test_nothing_is_fetched_and_nothing_but_flame_graphs_runs(page: Page, recording: Path) -> None:
    names = {name for name, *_ in page.elements}
    assert not names & {"script", "link", "object", "embed", "base", "form"}
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    for key, value in page.attributes:
        if key in ("src", "href", "action", "data"):
            assert value.startswith(("#", "data:image/svg+xml;base64,")), value
    whole = render(report([recording]))
    css = re.search("<style>(.*?)</style>", whole, re.DOTALL)
    assert css and "url(" not in css[1] and "@import" not in css[1]
    policy = next(value for key, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; ") and "http" not in policy
    for attributes in page.elements:
        if attributes[0] == "iframe":
            assert "sandbox" in attributes and "srcdoc" in attributes
    assert [value for key, value in page.attributes if key == "sandbox"] == ["allow-scripts"] * (
        3 if recording == DEMO else 2
    )


def test_links_lead_somewhere(page: Page) -> None:
    places = [value for key, value in page.attributes if key == "id"]
    assert len(places) == len(set(places))
    links = [value for key, value in page.attributes if key == "href"]
    assert len(links) == 7 and {link[1:] for link in links} <= set(places)


def test_it_is_small(recording: Path) -> None:
    assert len(render(report([recording])).encode()) < 2_000_000


# Hostile names


def patched(text: bytes) -> bytes:
    """The demo with other names in the same places, of the same length."""
    for old, new in (
        (b"grep\0\0\0\0", b"<bx=y>\0\0"),  # COMM
        (b"dir-00/file-029", b"</script><img >"),  # the command in the session
        (b"samplefs", b"<s id=1>"),  # the daemon's
        (b"file-024", b"<img id>"),  # the file of a slow request
    ):
        assert len(old) == len(new) and old in text, old
        text = text.replace(old, new)
    return text


def test_names_in_a_recording_are_text(tmp_path: Path) -> None:
    """They add no element and no attribute to the page, nor to its embedded pages."""
    path = tmp_path / "demo.data"
    path.write_bytes(patched(DEMO.read_bytes()))
    theirs = render(report([path]))
    assert "&lt;img id&gt;" in theirs and "&lt;/script&gt;&lt;img &gt;" in theirs
    assert "&lt;bx=y&gt;" in theirs and "&lt;s id=1&gt;" in theirs
    page, plain = Page(theirs), Page(render(report([DEMO])))
    assert page.elements == plain.elements
    for mine, own in zip(page.frames(), plain.frames()):
        assert Page(mine).elements == Page(own).elements


def drawn(whole: Report, graph: str) -> Stacks:
    stacks = whole.recordings[0].stacks[graph]
    assert isinstance(stacks, Stacks)
    return stacks


def with_session(whole: Report, facts: object) -> Report:
    (one,) = whole.recordings
    return replace(whole, recordings=(replace(one, session=read(json.dumps(facts))[0]),))


NAMES = ("function", "comm", "path", "mount", "daemon_comm", "syscall", "what", "why")
LISTS = ("warnings",)


def renamed(value: Any, name: str) -> Any:
    """Return the answers with a longer name for all names in a recording."""
    if isinstance(value, dict):
        return {key: renamed(one, name) for key, one in value.items()}
    if isinstance(value, tuple):
        items = [renamed(one, name) for one in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if not hasattr(value, "__dataclass_fields__"):
        return value
    found: dict[str, Any] = {}
    for key in value.__dataclass_fields__:
        one = getattr(value, key)
        if key in NAMES and isinstance(one, str):
            found[key] = one + name
        elif key == "subject":
            found[key] = {k: v + name if isinstance(v, str) else v for k, v in one.items()}
        elif key in LISTS:
            found[key] = (*one, name)
        elif key == "stacks" and hasattr(value, "kinds"):
            found[key] = {stack + name.replace(";", ""): weight for stack, weight in one.items()}
        elif key != "levels":
            found[key] = renamed(one, name)
    return replace(value, **found)


def test_all_names_are_text() -> None:
    """Longer names, with the ends of scripts, attributes and entities, and with control codes."""
    plain, theirs = report([DEMO]), renamed(report([DEMO]), HOSTILE)
    session = {
        "command": [HOSTILE],
        "started": HOSTILE,
        "fusetools": HOSTILE,
        "host": {"kernel": HOSTILE, "arch": HOSTILE, "cpus": HOSTILE, "perf": [HOSTILE]},
        "mounts": [{"path": HOSTILE, "fstype": {HOSTILE: 1}, "comm": HOSTILE}, 7],
        "exit_status": HOSTILE,
    }
    recorded = replace(theirs.recordings[0], session=read(json.dumps(session))[0])
    said = render(replace(theirs, recordings=(recorded,)))
    page = Page(said)
    known = {name for name, *_ in Page(render(plain)).elements}
    assert {name for name, *_ in page.elements} == known | {"strong"}  # that of the warnings
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    assert "onerror" in said
    controls = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    assert not re.search(controls, re.sub(r'srcdoc="[^"]*"', "", said))
    for frame in page.frames():
        assert "img" not in {name for name, *_ in Page(frame).elements}


@pytest.mark.parametrize(
    "session", [{"host": 1, "mounts": 2, "command": 3}, {"command": [None, {}]}]
)
def test_a_session_that_makes_no_sense(session: object) -> None:
    Page(render(with_session(report([DEMO]), session)))


def test_limits_of_a_mount() -> None:
    session = {"mounts": [{"path": "/mnt", "limits": {"max_background": 12, "max_read": 0}}]}
    text = "".join(Page(render(with_session(report([DEMO]), session))).texts)
    assert "Its limitsmax_background 12" in text and "max_read" not in text


# Missing parts


def test_missing_parts_have_a_fix() -> None:
    plain = report([DEMO])
    page = Page(render(plain))
    assert "Not recorded: kernel functions (this kernel has neither kprobes nor" in "".join(
        page.texts
    )
    empty = replace(drawn(plain, "requests"), stacks={})
    stacks = {
        **plain.recordings[0].stacks,
        "requests": empty,
        "off-cpu": Error("no waits", "why", "do"),
    }
    page = Page(render(replace(plain, recordings=(replace(plain.recordings[0], stacks=stacks),))))
    text = page.sections["part-1-flame"]
    assert "no waits (why). fix: do" in text
    assert "demo.data holds no request that a caller waited for" in text


def test_a_recording_without_requests(tmp_path: Path) -> None:
    """Each section states that it is empty."""
    plain = report([DEMO])
    one = plain.recordings[0]
    nothing = replace(
        one,
        histograms=replace(one.histograms, histograms=()),
        counts=replace(one.counts, counts=()),
        stages=replace(one.stages, operations=()),
        slowest=replace(one.slowest, requests=()),
        errors=replace(one.errors, operations=()),
        queue=replace(one.queue, mounts=()),
    )
    page = Page(render(replace(plain, recordings=(nothing,))))
    for name in ("where", "latency", "slowest", "errors", "queue", "calls"):
        assert re.search(r"No (calls|requests)\.", page.sections[f"part-1-{name}"]), name


def test_flame_graphs_that_are_large_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page stays small enough to send, however many stacks there are."""
    plain = report([DEMO])
    options = {"off-cpu": " --offcpu", "requests": " --requests", "on-cpu": ""}
    for graph, option in options.items():
        one = drawn(plain, graph)
        alone = replace(plain.recordings[0], stacks={graph: one})
        drawing = picture.picture(one, None, "x.svg", least=flame_html.NARROW)
        monkeypatch.setattr(flame_html, "LARGE", len(drawing))
        page = Page(render(replace(plain, recordings=(alone,))))  # its own page is larger
        assert page.frames() == [] and len([e for e in page.elements if e[0] == "img"]) == 1
        assert f"fusetools flame{option} -i {DEMO}" in page.texts
    monkeypatch.setattr(flame_html, "LARGE", 55_000)
    one = drawn(plain, "off-cpu")
    many = {f"a{i};b{i};c{i};d{i}": 1.0 for i in range(990)}
    large: dict[str, Stacks | Error] = {"off-cpu": replace(one, stacks=many)}
    page = Page(render(replace(plain, recordings=(replace(plain.recordings[0], stacks=large),))))
    assert not [e for e in page.elements if e[0] in ("img", "iframe")]
    assert "not drawn (too large for this page)" in page.sections["part-1-flame"]


def test_requests_that_were_not_matched_are_not_silently_gone() -> None:
    plain = report([DEMO])
    one = plain.recordings[0]
    forget = replace(
        one.stages.operations[0],
        operation="forget",
        matched=0,
        requests=7,
        unmatched={"no_reply": 7},
        stages=(),
    )
    recorded = replace(one, stages=replace(one.stages, operations=(forget,)))
    page = Page(render(replace(plain, recordings=(recorded,))))
    said = "forget: 7 requests, 0 matched, 7 expecting no answer."
    assert said in page.sections["part-1-where"]


def test_bars_of_slow_requests_hold_each_stage() -> None:
    """Also the caller's wake-up, and the parts before and after the request."""
    plain = report([DEMO])
    slowest = plain.recordings[0].slowest
    text = str(slow_html.render(slowest))
    drawn = re.findall(r"<title>([^<]*)</title>", text)
    wanted = [
        f"{words.short(name)} {duration(ns)}" for r in slowest.requests for name, ns in r.stages
    ]
    assert sorted(drawn) == sorted(wanted)
    assert any(title.startswith("caller wake-up") for title in drawn)


def test_slow_requests_that_are_alike_are_behind_the_slowest() -> None:
    plain = report([DEMO]).recordings[0].slowest
    one = replace(plain.requests[0], path="d/a", comm="cat", duration_ns=4_000_000)
    alike = [replace(one, path=f"d/{n}", duration_ns=n * 1_000_000) for n in (3, 1)]
    other = replace(one, path="e/a", duration_ns=2_000_000)
    text = str(slow_html.render(replace(plain, requests=(one, alike[0], other, alike[1]))))
    _, *hidden = text.split("<details>")
    assert (
        len(hidden) == 1 and hidden[0].count('<p class="what">') == 3
    )  # with the one that follows
    assert "and 2 alike, 1.00 ms to 3.00 ms" in hidden[0]
    assert [text.index(part) for part in ("/d/a", "/d/3", "/d/1", "/e/a")] == sorted(
        text.index(part) for part in ("/d/a", "/d/3", "/d/1", "/e/a")
    )


def test_operations_beyond_the_first_wait_for_a_click() -> None:
    plain = report([DEMO])
    matched = [o for o in plain.recordings[0].stages.operations if o.matched]
    shown, _, more = str(stages_html.render(plain.recordings[0].stages)).partition("<details>")
    assert len(matched) > stages_html.SHOWN
    assert shown.count("<figure>") == stages_html.SHOWN
    assert more.count("<figure>") == len(matched) - stages_html.SHOWN


# Several


def test_two_recordings(tmp_path: Path, run: Invoke) -> None:
    pytest.importorskip("scipy.stats")
    paths = [data.unpack("cernvmfs-6.1/perf.data.zst", tmp_path / "client.data"), DEMO]
    page = Page(render(report(paths)))
    places = [value for key, value in page.attributes if key == "id"]
    assert len(places) == len(set(places))
    compared = answer(run, "compare", *map(str, paths))
    for measure in compared["groups"][0]["measures"]:
        if measure["name"] not in ("lookup", "getxattr"):
            continue
        for letter, side in zip("AB", measure["sides"]):
            times = [duration(side[name]) for name in ("p50_ns", "p99_ns", "total_ns")]
            best = "" if side["times_best"] is None else f"{side['times_best']:.2f}"
            cells = (letter, number(side["count"]), *times, best)
            assert cells in {row[:6] for row in page.rows()}
    assert f"{compared['verdict']['text']}." in page.texts
    for d in answer(run, "diff", *map(str, paths))["differences"]:
        if d["layer"] == "daemon":
            wanted = (d["function"], number(d["a"]["count"]), number(d["b"]["count"]))
            assert wanted in {row[:3] for row in page.rows()}
    assert ("newfstatat (lookup)", "-", "14", "only B") in {row[:4] for row in page.rows()}


def test_a_sweep(tmp_path: Path) -> None:
    result = sweep.figures(made(tmp_path / "sweep", 7))
    page = Page(render(report([tmp_path / "sweep"])))
    for point in result.points:
        row = next(r for r in page.rows() if r[0] == point.label.partition("=")[2])
        assert row[1] == duration(1e9 * point.seconds.median)
        estimate = point.requests["read"].p50_ns
        assert estimate
        between = f" ({duration(estimate.low)} to "
        p50 = duration(estimate.median)
        assert any(t.startswith(f"{point.label}: {p50}{between}") for t in page.texts)
    for title in ("Bandwidth", "Time", "Context switches", "read: p50", "read: mean size"):
        assert title in page.texts
    assert "Few requests, only in sweep.csv: statfs." in page.texts


def test_sweeps_side_by_side_and_one_that_has_not_begun(tmp_path: Path) -> None:
    pytest.importorskip("scipy.stats")
    made(tmp_path / "one", 7)
    made(tmp_path / "two", 3, requests=False)
    page = Page(render(report([tmp_path / "one", tmp_path / "two"])))
    assert "Compared" in page.texts and "Not recorded (--no-trace): the requests." in page.texts
    assert {row[0] for row in page.rows()} >= {"A", "B"}
    empty = replace(sweep.figures(made(tmp_path / "three", 1)), points=(), to_do=3)
    nothing = replace(report([tmp_path / "three"]), sweeps=(empty,))
    assert "No run is done yet." in Page(render(nothing)).texts


def test_a_recording_and_a_sweep_are_not_compared(tmp_path: Path) -> None:
    made(tmp_path / "sweep", 2)
    page = Page(render(report([DEMO, tmp_path / "sweep"])))
    assert "Compared" not in page.texts
    assert "Bandwidth" in page.texts and "Slowest requests" in page.texts


# The command


def test_the_command_writes_a_file(
    tmp_path: Path, run: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perf.data").symlink_to(DEMO)
    done = run("report")
    size = (tmp_path / "report.html").stat().st_size
    assert done.exit_code == 0 and done.stdout == f"report.html: {size / 1000:.0f} kB\n"
    assert run("report", str(DEMO), "-o", "-").stdout.startswith("<!doctype html>")


def test_errors_are_one_line(tmp_path: Path, run: Invoke) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"no recording")
    damaged = tmp_path / "sweep"
    damaged.mkdir()
    (damaged / "sweep.json").write_text("{")
    for path, what in (
        (tmp_path / "none", "cannot read"),
        (junk, "junk"),
        (tmp_path, "cannot read"),
        (damaged, "is damaged"),
    ):
        done = run("report", str(DEMO), str(path), "-o", str(tmp_path / "out.html"))
        assert done.exit_code == 1
        first = done.stderr.splitlines()[0]
        assert first.startswith("fusetools: ") and what in first
        assert not (tmp_path / "out.html").exists()
    done = run("report", str(DEMO), "-o", str(tmp_path / "no" / "where.html"))
    assert done.exit_code == 1 and "cannot write" in done.stderr


# Parts


def test_text_is_escaped_in_markup() -> None:
    assert join("<b>", Markup("<i>"), ["&", ("'",)]) == "&lt;b&gt;<i>&amp;'"
    assert tag("a", "\x1b", href='"<&>', class_=None, open=True, aria_label="\u202e") == (
        '<a href="&quot;&lt;&amp;&gt;" open aria-label="\\u202e">\\x1b</a>'
    )


def test_histograms_stand_where_their_times_are() -> None:
    """1 us to 100 us: two decades."""
    buckets = [(1024, 2047, 10), (2048, 4095, 5), (32768, 65535, 1)]
    drawn = histograms([Panel(Markup("x"), "l-daemon", buckets, [("p50", 10_000)])], "x")
    left = [float(x) for x in re.findall(r'class="bin [^"]*" x="([\d.]+)%"', drawn)]
    wanted = [100 * (x - 3) / 2 for x in (3.0103, 3.3113, 4.5154)]
    assert left == pytest.approx(wanted, abs=0.01)
    assert re.findall(r'class="mark" x1="([\d.]+)%"', drawn) == ["50"]
    tall = [float(h) for h in re.findall(r' height="([\d.]+)">', drawn) if float(h) < 44]
    assert tall[:3] == pytest.approx([40, 20, 4], abs=0.01)
    assert re.findall(r">([^<>]+)</text>", drawn) == ["1 us", "10 us", "100 us"]


def test_a_long_axis_has_words_at_every_second_decade() -> None:
    drawn = histograms(
        [Panel(Markup("x"), "l-daemon", [(128, 255, 1), (1 << 29, (1 << 30) - 1, 1)])], "x"
    )
    assert re.findall(r">([^<>]+)</text>", drawn) == ["100 ns", "10 us", "1 ms", "100 ms", "10 s"]


def test_points_stand_where_their_values_are() -> None:
    """On 0 to 20: 10 is half way up, the error bar from 5 to 20 ends at the top."""
    one = Series("c0", [Place(0.5, 10, 5, 20, "x")])
    drawn = points([one], [(0.5, "4k")], lambda v: f"{v:.2f} B", "x")
    (y,) = re.findall(r'<svg x="50%" y="([\d.]+)"', drawn)
    assert float(y) == pytest.approx(6 + 144 / 2)
    assert re.findall(r"M-4 ([-\d.]+)H4M0 [-\d.]+V([-\d.]+)M", drawn) == [("-72.0", "36.0")]
    assert re.findall(r">([^<>]+)</text>", drawn) == ["0", "5 B", "10 B", "15 B", "20 B", "4k"]


# In a browser


def see(driver: Driver, path: Path, width: int, dark: bool = False) -> dict[str, float]:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get(path.as_uri())
    seen: dict[str, float] = driver.execute_script(
        """const page = document.documentElement;
        const light = name => {
          const [r, g, b] = getComputedStyle(document.body)[name].match(/\\d+/g).map(Number);
          return (r + g + b) / 765;
        };
        return {
          wide: page.scrollWidth, window: page.clientWidth, paper: light("backgroundColor"),
          ink: light("color"), fetched: performance.getEntriesByType("resource")
            .filter(one => !one.name.startsWith("data:")).length,
          beyond: [...document.querySelectorAll("main *")].filter(
            one => !one.closest(".wide") && one.getBoundingClientRect().right > innerWidth + 1
          ).length,
        };"""
    )
    return seen


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything: two recordings, and a sweep."""
    folder = tmp_path_factory.mktemp("page")
    client = data.unpack("cernvmfs-6.1/perf.data.zst", folder / "client.data")
    made(folder / "sweep", 7)
    path = folder / "report.html"
    whole = report([DEMO, client])
    path.write_text(
        render(replace(whole, sweeps=report([folder / "sweep"]).sweeps)), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize("width", [1200, 700, 400])
def test_it_fits_the_window(written: Path, driver: Driver, width: int) -> None:
    seen = see(driver, written, width)
    assert seen["wide"] <= seen["window"] and seen["beyond"] == 0
    assert seen["fetched"] == 0
    log = [one for one in driver.get_log("browser") if one["source"] != "rendering"]
    assert log == []


@pytest.mark.parametrize("width", [1200, 400])
def test_long_names_fit_the_window(tmp_path: Path, driver: Driver, width: int) -> None:
    """Paths, mounts, functions and callers of hundreds of characters without a space."""
    long = tmp_path / ("long" * 50) / "demo.data"
    long.parent.mkdir()
    shutil.copy(DEMO, long)
    made(tmp_path / ("sweep" * 40), 7)
    named = renamed(report([long]), "x" * 200)
    sweeps = report([tmp_path / ("sweep" * 40)]).sweeps
    path = tmp_path / "report.html"
    path.write_text(render(replace(named, sweeps=sweeps)), encoding="utf-8")
    seen = see(driver, path, width)
    assert seen["wide"] <= seen["window"] and seen["beyond"] == 0


def test_it_is_dark_where_the_system_is(written: Path, driver: Driver) -> None:
    light, dark = see(driver, written, 1200), see(driver, written, 1200, dark=True)
    assert light["paper"] > 0.9 > 0.2 > light["ink"]
    assert dark["paper"] < 0.2 < 0.8 < dark["ink"]


def test_a_flame_graph_can_be_searched_in_its_frame(written: Path, driver: Driver) -> None:
    see(driver, written, 1200)
    driver.execute_script('document.querySelector("details.screen").open = true')
    frame = driver.find_element("css selector", "iframe")
    driver.execute_script("arguments[0].scrollIntoView()", frame)
    driver.switch_to.frame(frame)
    try:
        end = time.monotonic() + 120
        while not driver.execute_script("return performance.getEntriesByName('drawn').length"):
            assert time.monotonic() < end
            time.sleep(0.05)
        driver.find_element("id", "search").send_keys("schedule")
        while not driver.find_element("id", "found").text:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert "%" in driver.find_element("id", "found").text
        # It is untrusted: it cannot reach the page around it.
        assert driver.execute_script("return window.origin") == "null"
        assert (
            driver.execute_script(
                "try { return parent.document.title; } catch (error) { return error.name; }"
            )
            == "SecurityError"
        )
    finally:
        driver.switch_to.default_content()


def test_it_prints(written: Path, driver: Driver, tmp_path: Path) -> None:
    see(driver, written, 1200)
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF") and 5 < len(re.findall(rb"/Type\s*/Page\b", pdf)) < 60


def test_a_small_report_has_six_pages(driver: Driver, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(report([DEMO])), encoding="utf-8")
    see(driver, page, 1200)
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    pages = re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"]))
    assert len(pages) <= 6
