"""hist, count and diff as printed for users, on given calls."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden
import pytest
from fake_core import FakeCore, Made, cvmfs_like, probes
from fixtures import Fake, Invoke

import fusetools
from fusetools.answers.diff import diff
from fusetools.figures import duration, number
from fusetools.render.text import count as text_of_count
from fusetools.render.text import cvmfs
from fusetools.results.count import COLUMNS, Count, Counts
from fusetools.results.facts import Facts


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("hist", ["hist"]),
        ("hist-lookup", ["hist", "lookup"]),
        ("hist-unit", ["hist", "cvmfs_open", "--unit", "ms"]),
        ("hist-cvmfs", ["hist", "--style", "cvmfs", "lookup", "batch_forget"]),
        ("hist-overhead", ["hist", "cvmfs_lookup", "--overhead"]),
        ("hist-json", ["hist", "open", "--json"]),
        ("hist-nothing", ["hist", "fallocate"]),
        ("count", ["count"]),
        ("count-regex", ["count", "look"]),
        ("count-csv", ["count", "--csv", "-"]),
        ("count-json", ["count", "lookup", "--json"]),
        ("diff", ["diff", "perf.data", "other.data"]),
        ("diff-per-second", ["diff", "perf.data", "other.data", "--per", "second"]),
        ("diff-csv", ["diff", "perf.data", "other.data", "--csv", "-"]),
        ("help", ["--help"]),
    ],
)
def test_output(fake: Fake, run: Invoke, name: str, args: list[str]) -> None:
    fake(cvmfs_like(), cvmfs_like(0.3))
    result = run(*args)
    assert result.exit_code == 0
    golden.check(f"{name}.txt", result.output)
    if not any(form in name for form in ("json", "csv", "cvmfs")):
        assert all(len(line) <= 80 for line in result.output.splitlines())


def test_the_texts_figures_are_jsons(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    found = json.loads(run("hist", "--json").stdout)
    text = run("hist").stdout
    rows = {tuple(line.split()[:2]): line for line in text.splitlines() if line.startswith("  ")}
    assert len(found["histograms"]) == 19
    for h in found["histograms"]:
        if not h["count"]:
            assert f"never called: {h['function']}\n" in text
            continue
        p = h["percentiles_ns"]
        figures = [duration(ns) for ns in (p["50"], p["90"], p["99"], h["max_ns"])]
        line = rows[h["layer"], h["function"]]
        assert re.split(r"\s{2,}", line.strip())[2:] == [number(h["count"]), *figures]


def test_the_histograms_figures_are_jsons(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    (h,) = json.loads(run("hist", "cvmfs_lookup", "--json").stdout)["histograms"]
    text = run("hist", "cvmfs_lookup", "--unit", "ns").stdout
    for name, ns in [*h["percentiles_ns"].items()]:
        assert f"p{name} {ns:,} ns" in text
    assert f"min {h['min_ns']:,} ns  mean {h['mean_ns']:,.0f} ns  max {h['max_ns']:,} ns" in text
    assert f"{h['count']:,} calls, {h['unmatched']} unmatched" in text
    printed = re.findall(r"^ +([\d,]+) ns +([\d,]+) ns +([\d,]+)  ", text, re.MULTILINE)
    exact = [tuple(int(x.replace(",", "")) for x in row) for row in printed]
    assert exact == [(b["low_ns"], b["high_ns"] + 1, b["calls"]) for b in h["buckets"]]


def test_json_has_its_keys(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    found = json.loads(run("hist", "--json").stdout)
    assert found["recording"]["lost"] == 0
    keys = "operation layer function count unmatched min_ns max_ns mean_ns percentiles_ns buckets"
    assert all(list(h)[:10] == keys.split() for h in found["histograms"])
    found = json.loads(run("count", "--json").stdout)
    assert all(
        list(c) == ["function", "operation", "layer", "count", "address"] for c in found["counts"]
    )


def interrupted(*values: object) -> dict[str, object]:
    names = ("operation", "comm", "signal", "requests", "signals", "read", "obeyed")
    return dict(zip(names, values))


def test_count_shows_interrupts_of_the_counted_operations(fake: Fake, run: Invoke) -> None:
    core = fake(cvmfs_like())
    assert "INTERRUPT" not in run("count").output
    assert json.loads(run("count", "--json").stdout)["interrupts"] == []
    core.interrupts = [
        interrupted("lookup", "stat", 14, 20, 21, 20, 0),
        interrupted("read", "dd", 2, 1, 1, 1, 1),
        interrupted("fallocate", "dd", 2, 1, 1, 1, 1),  # not counted here
    ]
    text = " ".join(run("count").output.split())
    stat = (
        "20 lookups of stat got 21 signals (SIGALRM) while waiting: the daemon read 20 INTERRUPTs"
    )
    assert f"{stat} and answered 0 with EINTR" in text
    assert "1 read of dd got 1 signal (SIGINT)" in text and "fallocate" not in text.split("dd")[1]
    found = json.loads(run("count", "look", "--json").stdout)["interrupts"]
    assert [(row["operation"], row["read"], row["obeyed"]) for row in found] == [("lookup", 20, 0)]


def test_lost_events_are_always_said(fake: Fake, run: Invoke) -> None:
    core = cvmfs_like()
    core.lost, core.warnings = 12_345, ["the file is cut off"]
    fake(core, cvmfs_like())
    for args in (["hist"], ["hist", "open"], ["hist", "--style", "cvmfs"], ["count"]):
        out = run(*args).output
        assert "12,345 LOST events" in out
        assert "warning: the file is cut off" in out
    out = run("diff", "perf.data", "other.data").output
    assert "12,345 LOST events" in out and "0 lost events" in out
    assert json.loads(run("count", "--json").stdout)["recording"]["lost"] == 12_345


def test_the_probes_cost_is_said(fake: Fake, run: Invoke) -> None:
    core = fake(cvmfs_like())
    assert "about 1.80 us of probe cost" in run("hist", "open").output
    assert "probe cost" not in run("hist", "--layer", "request").output
    del core.session["probe_cost_ns"]
    assert "not measured" in run("hist", "open").output


@pytest.mark.parametrize(
    ("took", "said"),
    [
        ({"ns": 599_000, "least": False, "requests": 217}, "about 599 us of CPU time, 2.76 us a "),
        ({"ns": 599_000, "requests": 217}, "at least 599 us of CPU time, 2.76 us a request"),
        ({"ns": 5_000, "least": True, "requests": 0}, "at least 5.00 us of CPU time\n"),
        ({"ns": -5, "least": False, "requests": 3}, ""),
        ({"ns": 5_000, "least": False, "requests": "many"}, "about 5.00 us of CPU time\n"),
        ([], ""),
    ],
)
def test_hist_reports_the_recording_cost(took: object, said: str, fake: Fake, run: Invoke) -> None:
    core = fake(cvmfs_like())
    core.session["took"] = took
    for command in ("hist", "count"):
        text = run(command).output
        assert f"recording took {said}" in text if said else "recording took" not in text
    found = json.loads(run("hist", "--json").stdout)["recording"]["took"]
    assert (found is not None) == bool(said)


def test_the_probes_part_of_a_bin(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    found = json.loads(run("hist", "--json").stdout)
    assert found["recording"]["probe_cost_ns"] == 1800
    (h,) = [h for h in found["histograms"] if h["function"] == "cvmfs_lookup"]
    text = run("hist", "cvmfs_lookup", "--overhead").stdout
    assert f"  {180_000 / h['mean_ns']:.1f} %\n" in text  # of the mean, exactly
    assert re.search(r"  8.19 us  16.4 us    299 +11-22 %  ", text)
    assert "88-100 %" in text  # all of the shortest call is the probes'
    assert "other layers" not in text
    assert "other layers was not measured" in run("hist", "--overhead").stdout


def test_a_layer_that_was_not_asked_for_is_not_missed(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    assert "not recorded" in run("hist", "open").output
    assert "not recorded" not in run("hist", "open", "--layer", "daemon").output


def test_cvmfs_style_holds_every_call(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    result = run("hist", "--style", "cvmfs", "lookup")
    counts = [int(n) for n in re.findall(r"-> +\d+ : +(\d+) ", result.stdout)]
    assert len(counts) == 30 and sum(counts) == 1796
    assert re.search(r"total : +1796\n", result.stdout)
    assert "event" in result.stderr and "event" not in result.stdout


def test_cvmfs_overflow() -> None:
    series: Any = Made("daemon", "cvmfs_read", "read", [2**30 - 1, 2**30, 2**33]).series()
    from fusetools.answers.series import series_of

    counts, overflow = cvmfs.bins(series_of(series).histogram)
    assert (counts[29], sum(counts), overflow) == (1, 1, 2)
    assert "overflow :     2 |" in cvmfs.distribution(counts, overflow)


@pytest.mark.parametrize("layer", ["request", "syscall"])
def test_cvmfs_style_is_of_the_daemon(fake: Fake, run: Invoke, layer: str) -> None:
    fake(cvmfs_like())
    assert run("hist", "--style", "cvmfs", "--layer", layer).exit_code == 2


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1.5", 1_500_000_000),
        ("1500ms", 1_500_000_000),
        (".5s", 500_000_000),
        ("20us", 20_000),
        ("7ns", 7),
    ],
)
def test_times(fake: Fake, run: Invoke, text: str, ns: int) -> None:
    core = fake(cvmfs_like())
    assert run("hist", "--from", text).exit_code == 0
    assert core.asked[-1][2] == {"daemons": [(20, 45)], "opened": [], "from_ns": ns}


def test_inlined_callbacks_have_the_time_from_read_to_reply(fake: Fake, run: Invoke) -> None:
    recorded = cvmfs_like()
    recorded.session["mounts"][0]["fs"] = "fuser"
    core = fake(recorded)
    assert run("hist").exit_code == 0
    assert core.asked[-1][2]["windows"]
    assert run("hist", "--layer", "request").exit_code == 0
    assert "windows" not in core.asked[-1][2]


@pytest.mark.parametrize(
    "args",
    [
        ["hist", "--from", "x"],
        ["hist", "--to", "-1"],
        ["hist", "--to", "1e9"],
        ["hist", "--from", "2", "--to", "1"],
        ["hist", "--unit", "h"],
        ["hist", "--style", "cvmfs", "--overhead"],
        ["hist", "--layer", "disk"],
        ["count", "("],
        ["diff", "perf.data"],
        ["diff", "perf.data", "other.data", "--thresholds", "5"],
        ["diff", "perf.data", "other.data", "--thresholds", "5,1"],
        ["diff", "perf.data", "other.data", "--thresholds", "nan,nan"],
    ],
)
def test_usage_errors(fake: Fake, run: Invoke, args: list[str]) -> None:
    fake(cvmfs_like(), cvmfs_like())
    assert run(*args).exit_code == 2


# count and CSV


def test_csv_holds_what_json_holds(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    run("count", "--csv", "out.csv")
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    for row, count in zip(rows, json.loads(run("count", "--json").stdout)["counts"]):
        assert row["function"] == count["function"]
        assert int(row["count"]) == count["count"]
        assert (int(row["address"], 16) if row["address"] else None) == count["address"]
    hist = json.loads(run("hist", "--json").stdout)["histograms"]
    for h in hist:
        key = (h["layer"], h["function"], h["operation"])
        (row,) = [r for r in rows if (r["layer"], r["function"], r["operation"]) == key]
        if h["count"]:
            assert int(row["p99.9_ns"]) == h["percentiles_ns"]["99.9"]
            assert float(row["mean_ns"]) == h["mean_ns"]


def test_csv_reads_back_into_diff(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like(), cvmfs_like(0.3))
    run("count", "-i", "perf.data", "--csv", "perf.csv")
    run("count", "-i", "other.data", "--csv", "other.csv")
    Path("named-otherwise").write_text(Path("other.csv").read_text())
    keys = ("differences", "per")
    for per in ([], ["--per", "second"], ["--per", "request"]):
        results = [
            json.loads(run("diff", a, b, "--json", *per).stdout)
            for a, b in (
                ("perf.data", "other.data"),
                ("perf.csv", "other.csv"),
                ("perf.data", "other.csv"),
                ("perf.csv", "named-otherwise"),
            )
        ]
        assert all([r[k] for k in keys] == [results[0][k] for k in keys] for r in results)
        assert results[0]["differences"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "\0",
        "function,operation\n",
        ",".join(COLUMNS) + "\nf,o,daemon,many\n",
        ",".join(COLUMNS) + "\nf,o,cellar" + ",1" * 16 + "\n",
        ",".join(COLUMNS) + "\nf,o,daemon" + "," * 16 + "\n",
        ",".join(COLUMNS) + "\nf\n",
    ],
)
def test_a_csv_of_something_else_is_refused(fake: Fake, run: Invoke, text: str) -> None:
    fake(cvmfs_like())
    Path("x.csv").write_text(text)
    result = run("diff", "perf.data", "x.csv")
    assert result.exit_code == 1
    assert "cannot read x.csv" in result.stderr and "fix:" in result.stderr


@pytest.mark.parametrize("name", ["nowhere.csv", ".", "nowhere.data"])
def test_diff_of_what_cannot_be_read(fake: Fake, run: Invoke, name: str) -> None:
    fake(cvmfs_like())
    result = run("diff", "perf.data", name)
    assert result.exit_code == 1
    assert f"cannot read {name}" in result.stderr and "fix:" in result.stderr


def test_a_csv_that_cannot_be_written(fake: Fake, run: Invoke) -> None:
    fake(cvmfs_like())
    result = run("count", "--csv", "nowhere/out.csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot write nowhere/out.csv" in result.stderr


# diff


def differ(fake: Fake, run: Invoke, a: list[Made], b: list[Made], *args: str) -> str:
    def core(made: list[Made]) -> FakeCore:
        functions = [(m.layer, m.function, m.operation) for m in made if m.layer == "daemon"]
        return FakeCore(made, session={"probes": probes(*functions)}, requests=(100, 100, 100))

    fake(core(a), core(b))
    return run("diff", "perf.data", "other.data", *args).stdout


def made(function: str, n: int, ns: int = 1000) -> Made:
    return Made("daemon", function, "", [ns] * n)


@pytest.mark.parametrize(
    ("a", "b", "mark", "colour"),
    [
        (5, 5, "", None),
        (5, 6, "!", None),
        (0, 100, "!", None),
        (200, 99, "!!", 35),
        (0, 500, "!!", 35),
        (0, 501, "!!!", 31),
        (1000, 1, "!!!", 31),
    ],
)
def test_marks_and_colours(fake: Fake, a: int, b: int, mark: str, colour: int | None) -> None:
    from fusetools.render.text.diff import render

    one = FakeCore([made("f", a)], session={"probes": probes(("daemon", "f", ""))})
    two = FakeCore([made("f", b)], session={"probes": probes(("daemon", "f", ""))})
    fake(one, two)
    a_counts, b_counts = (fusetools.open(name).counts() for name in ("perf.data", "other.data"))
    said = render(diff(a_counts, b_counts)).splitlines()
    line = next(line for line in said if re.match(r"(\x1b\[\d+m)?f ", line))
    assert re.findall("!+", line) == ([mark] if mark else [])
    assert re.findall(r"\x1b\[(3\d)m", line) == ([str(colour)] if colour else [])


def test_thresholds_can_be_set(fake: Fake, run: Invoke) -> None:
    out = differ(fake, run, [made("f", 0)], [made("f", 50)], "--thresholds", "10,20")
    assert "!!!" in next(line for line in out.splitlines() if line.startswith("f "))


def test_colours_only_on_a_terminal(fake: Fake, run: Invoke) -> None:
    assert "\x1b" not in differ(fake, run, [made("f", 0)], [made("f", 1)])


def test_differences_are_signed(fake: Fake, run: Invoke) -> None:
    out = differ(fake, run, [made("f", 4, 1000)], [made("f", 3, 1500)], "--json")
    (d,) = json.loads(out)["differences"]
    assert (d["change"], d["percent"]) == (-1, -25.0)
    assert (d["p50_change_ns"], d["p50_percent"]) == (500, 50.0)


def test_functions_that_only_one_has(fake: Fake, run: Invoke) -> None:
    out = differ(fake, run, [made("f", 4), made("old", 3)], [made("f", 4), made("new", 5)])
    assert re.search(r"^old +3 +- +only A\b", out, re.MULTILINE)
    assert re.search(r"^new +- +5 +only B\b", out, re.MULTILINE)


def test_a_request_that_did_not_happen_is_nought(fake: Fake, run: Invoke) -> None:
    both = Made("request", "FUSE_OPEN", "open", [1])
    one = Made("request", "FUSE_READ", "read", [1, 1])
    out = differ(fake, run, [both, one], [both], "--json")
    by_name = {d["function"]: d for d in json.loads(out)["differences"]}
    assert by_name["FUSE_READ"]["b"]["count"] == 0
    assert by_name["FUSE_READ"]["percent"] == -100.0


def test_a_recording_without_requests_recorded_none() -> None:
    """It is not one that lacks the layer, if its detail has it."""
    calls = tuple(Count(f, "read", f, 7) for f in ("request", "syscall", "daemon"))
    some = Counts(calls, Facts("a", 1.0, detail="stacks"))
    for detail, known in (("stacks", 2), ("latency", 1), ("", 0)):
        none = Counts((), Facts("b", 1.0, detail=detail))
        assert sum(d.b.count == 0 for d in diff(some, none).differences) == known


def test_per_request_and_second(fake: Fake, run: Invoke) -> None:
    a, b = [made("f", 50)], [made("f", 100)]
    (d,) = json.loads(differ(fake, run, a, b, "--per", "request", "--json"))["differences"]
    assert (d["a"]["count"], d["b"]["count"]) == (0.5, 1.0)
    (d,) = json.loads(differ(fake, run, a, b, "--per", "second", "--json"))["differences"]
    assert d["a"]["count"] == 50 / 3.2


def test_per_request_needs_requests(fake: Fake, run: Invoke) -> None:
    core = FakeCore([made("f", 1)], session={"probes": probes(("daemon", "f", ""))})
    fake(core, core)
    result = run("diff", "perf.data", "other.data", "--per", "request")
    assert result.exit_code == 1 and "it has none" in result.stderr


# Names in a recording are untrusted


def test_no_name_steers_the_terminal(fake: Fake, run: Invoke) -> None:
    evil = "f\x1b[2J\x07\u202e\n\x9b"
    core = FakeCore(
        [Made("daemon", evil, evil, [1, 2]), Made("daemon", evil + "0", "", [])],
        session={
            "probes": probes(("daemon", evil, evil), ("daemon", evil + "0", "")),
            "mounts": [{"path": evil, "connection": 1}],
            "missing": [{"what": evil, "why": evil, "fix": evil}],
            "misses": {evil: 1},
        },
        warnings=[evil],
    )
    fake(core, core)
    for args in (
        ["hist"],
        ["hist", "f*"],
        ["hist", "--style", "cvmfs"],
        ["hist", "--json"],
        ["hist", "zz"],
        ["hist", "--mount", evil],
        ["count"],
        ["count", "--json"],
        ["count", "--csv", "-"],
        ["diff", "perf.data", "other.data"],
        ["diff", "perf.data", "other.data", "--json"],
        ["diff", "perf.data", "other.data", "--csv", "-"],
    ):
        output = run(*args).output
        assert output
        left = output.translate(dict.fromkeys(map(ord, "\n▏▎▍▌▋▊▉█")))
        assert left.isprintable(), args


def test_blocks_become_ascii_where_they_must(
    fake: Fake, run: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    import click

    from fusetools.cli import options

    class Ascii:
        encoding = "ascii"

    said: list[str] = []
    monkeypatch.setattr(sys, "stdout", Ascii())
    monkeypatch.setattr(click, "echo", lambda text, **_: said.append(text))
    options.say("ab █▌ é\n")
    assert said == ["ab ## \\xe9\n"]


def test_functions_of_several_daemons_are_called_or_never_called(fake: Fake) -> None:
    """Each daemon has its own copy of a library's function."""
    fake(cvmfs_like())
    counts = (
        Count("fuse_reply_open", "", "daemon", 3, 0x10),
        Count("fuse_reply_open", "", "daemon", 0, 0x20),
        Count("fuse_reply_buf", "", "daemon", 0, 0x30),
        Count("fuse_reply_buf", "", "daemon", 0, 0x40),
    )
    text = text_of_count.render(replace(fusetools.open().counts(), counts=counts))
    assert "never called: fuse_reply_buf\n" in text
