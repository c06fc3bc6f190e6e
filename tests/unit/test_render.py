"""Figures and tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusetools
from fusetools.cli import record
from fusetools.figures import binary, duration, number, plural, took
from fusetools.host.facts import HostFacts
from fusetools.plan import kernel
from fusetools.plan.capabilities import diagnose
from fusetools.printable import printable
from fusetools.render.text.footer import ways_out
from fusetools.render.text.hist import render as render_hist
from fusetools.render.text.layout import PIPED, bar, lines, prose, table
from fusetools.results.facts import Facts, unlike
from fusetools.results.hist import Histogram, Histograms
from fusetools.results.record import Outcome
from fusetools.session import Throttled

NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def read_back(text: str) -> float:
    value, unit = text.split(" ")
    return float(value.replace(",", "")) * NS[unit]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (999.6, "1.00 us"),
        (1000, "1.00 us"),
        (1234, "1.23 us"),
        (9994, "9.99 us"),
        (9996, "10.0 us"),
        (99_960, "100 us"),
        (999_499, "999 us"),
        (999_600, "1.00 ms"),
        (1_900_000, "1.90 ms"),
        (12_345_678_901, "12.3 s"),
        (4_000_000_000_000, "4,000 s"),
        (-1500, "-1.50 us"),
        (None, "-"),
    ],
)
def test_duration(ns: float | None, text: str) -> None:
    assert duration(ns) == text


@given(st.integers(0, 2**63))
def test_a_duration_reads_back_within_half_a_per_cent(ns: int) -> None:
    assert read_back(duration(ns)) == pytest.approx(ns, rel=0.00501)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_longer_duration_never_reads_shorter(a: int, b: int) -> None:
    a, b = sorted((a, b))
    assert read_back(duration(a)) <= read_back(duration(b))


@given(st.integers(0, 2**52))
def test_a_duration_in_a_given_unit_is_exact(ns: int) -> None:
    assert read_back(duration(ns, "ns")) == ns
    assert duration(ns, "ns").endswith(" ns")
    assert round(read_back(duration(ns, "us"))) == ns
    assert read_back(duration(ns, "ms")) == pytest.approx(ns, abs=501)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 100))
def test_a_bar_is_as_long_as_its_share_and_never_hides_a_call(
    n: int, most: int, width: int
) -> None:
    n = min(n, most)
    drawn = bar(n, most, width)
    eighths = sum(8 if c == "█" else " ▏▎▍▌▋▊▉".index(c) for c in drawn)
    assert len(drawn) <= width
    assert eighths == pytest.approx(8 * width * n / most, abs=1)
    assert bool(drawn) == bool(n)


@given(st.text())
def test_printable_never_steers_a_terminal(text: str) -> None:
    assert all(c.isprintable() for c in printable(text))


def test_took_formats_durations() -> None:
    assert [took(s) for s in (4321.04, 3.2, 0.1)] == ["72 min", "3.2 s", "0.1 s"]
    assert [took(s) for s in (0.0381, 0.000_2, 0)] == ["38.1 ms", "200 us", "0 ns"]


def test_sizes_that_are_set_read_as_users_write_them() -> None:
    sizes = {0: "0", 1: "1", 1 << 10: "1k", 1 << 20: "1M", 500 << 20: "500M", 1 << 42: "4096G"}
    assert {size: binary(size) for size in sizes} == sizes


def test_plurals() -> None:
    assert [plural(n, "call") for n in (0, 1, 2000)] == ["0 calls", "1 call", "2,000 calls"]
    assert plural(2, "process or thread", "processes or threads") == "2 processes or threads"


@pytest.mark.parametrize("columns", [0, 30])
def test_no_word_is_broken_at_a_hyphen(columns: int) -> None:
    text = "adjusted for several tests " * 3 + "(Benjamini-Hochberg) of wake-ups"
    said = prose(text, " ", "  ", columns)
    assert " ".join(line.strip() for line in said) == text
    assert all(len(line) <= (columns or 80) for line in said)
    assert said[0].startswith(" a") and said[1].startswith("  ")


def test_number() -> None:
    assert number(1234567) == "1,234,567"
    assert number(-5, "+") == "-5"
    assert number(131533, "+") == "+131,533"
    assert [number(x) for x in (0.0, 0.25, 2.5, 9.996, 10.0, 99.96, 1234.5)] == [
        "0",
        "0.250",
        "2.50",
        "10.0",
        "10.0",
        "100",
        "1,234",
    ]
    assert plural(1, "call") == "1 call"
    assert plural(2000, "call") == "2,000 calls"


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1))
def test_table_columns_line_up(rows: list[tuple[str, str, str]]) -> None:
    marked = [(a, b, printable(c) + "|") for a, b, c in rows]
    lines = table(marked, "<>>")
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == len(rows)


def test_table_lets_a_plain_line_through() -> None:
    assert table([("a", "1"), "a long line that is no row", ("bbb", "22")], "<>") == [
        "a     1",
        "a long line that is no row",
        "bbb  22",
    ]


def test_every_figure_has_its_unit() -> None:
    assert re.fullmatch(r"[\d.,]+ (ns|us|ms|s)", duration(123456789))


# Fixes


def written(node: ast.expr) -> str:
    """A text in the code; placeholders count as nothing."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(written, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def fixes() -> Iterator[str]:
    """Fixes in errors and in missing parts, and those for the stored hosts."""
    place = {"Error": 2, "Reason": 3, "Advice": 1}
    for path in Path(fusetools.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and called in place:
                yield from map(written, node.args[place[called] :][:1])
                yield from (written(one.value) for one in node.keywords if one.arg == "fix")
    for path in Path(__file__).parents[1].glob("host_facts/*/facts.json"):
        facts = HostFacts.from_json(path.read_text())
        yield from (one.fix for one in kernel.plan(facts, ()).missing)
        yield from (one.fix for one in diagnose(facts).advice)


def test_every_fix_fits_into_80_columns() -> None:
    found = {fix for fix in fixes() if fix}
    assert len(found) > 50 and any("CONFIG_FUNCTION_GRAPH_TRACER" in fix for fix in found)
    for fix in found:
        for indent in ("  ", " " * 11):  # below an error, and in the table of hist
            assert max(map(len, ways_out(fix, indent))) <= PIPED, fix


def test_a_long_command_stands_further_left_and_stays_whole() -> None:
    assert ways_out("x" * 60, " " * 11) == [" " * 11 + "fix: " + "x" * 60]
    assert ways_out("x" * 70, " " * 11) == [" " * 5 + "fix: " + "x" * 70]
    assert ways_out("x" * 90, " " * 11) == ["  fix: " + "x" * 90]


def test_messages_are_wrapped_on_a_terminal_and_whole_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = "perf (pid 12345), trace-cmd (pid 12346), bpftrace (pid 12347)"
    warning = f"28 events of probes stay, in use by {users}: fusetools clean"
    outcome = Outcome(warnings=[warning], throttled=[Throttled("/a", "daemon", 1, 10**9)])
    throttled = "  the daemon was throttled 1 time, 1.00 s in all, by the CPU quota of /a"
    record._notes(outcome)
    assert capsys.readouterr().err.splitlines() == [f"  warning: {warning}", throttled]
    monkeypatch.setenv("COLUMNS", "80")
    record._notes(outcome)
    said = capsys.readouterr().err.splitlines()
    assert " ".join(" ".join(said[:2]).split()) == f"warning: {warning}"
    assert said[2:] == [throttled]
    assert max(map(len, said)) <= 80


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_tables_rows_have_more_lines_on_a_narrow_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("FUNCTION", *["MEAN"] * 8, "FILE"), ("x" * 30, *["12.5 us"] * 8, "/" * 24)]
    (whole,) = {len(row) for row in table(rows[1:], "<>>>>>>>><")}
    assert whole == 30 + 8 * 9 + 2 + 24  # piped
    monkeypatch.setenv("COLUMNS", str(columns))
    head, row = (cells.split("\n") for cells in table(rows, "<>>>>>>>><", "  "))
    assert all(len(line) <= columns for line in (*head, *row))
    assert " ".join(" ".join(row).split()) == " ".join(" ".join(rows[1]).split())
    # Each heading stands above its figures.
    ends = {match.end() for match in re.finditer("MEAN", head[0])}
    assert ends <= {match.end() for match in re.finditer("us", row[0])}


def test_only_commands_are_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    said = lines(["  " + "word " * 20, *ways_out("x" * 50, "  "), "\x1b[1m" + "y" * 40])
    wide = [line for line in said.splitlines() if len(line) > 40]
    assert wide == ["  fix: " + "x" * 50, "\x1b[1m" + "y" * 40]
    assert "\n    word word" in said


def test_a_number_keeps_its_unit() -> None:
    for columns in range(12, 40):
        printed = prose("waited 586 ms, for 1.9 % of 60 s, and 20 kB", columns=columns)
        assert " ".join(printed) == "waited 586 ms, for 1.9 % of 60 s, and 20 kB"
        assert not [line for line in printed if line[-1].isdigit()]


def test_called_functions_without_durations_are_not_called_never() -> None:
    rows = tuple(
        Histogram("read", "daemon", function, 0, unmatched, None, None, None, {}, ())
        for function, unmatched in (("replies", 7), ("idle", 0))
    )
    printed = render_hist(Histograms(rows, Facts("x", 1.0), 7), bars=False).splitlines()
    assert "called, but without durations: replies (7)" in printed
    assert "never called: idle" in printed


def test_unlike_recordings_are_remarked() -> None:
    here = Facts("a", 1.0, host="h", kernel="6.1", detail="latency")
    assert unlike((("A", here), ("B", here), ("C", Facts("foreign", 1.0)))) == []
    there = replace(here, kernel="6.2", detail="stages")
    assert unlike((("A", here), ("B", there))) == [
        "recorded on different hosts or kernels: A on h, Linux 6.1; B on h, Linux 6.2",
        "recorded in different detail, whose overhead differs: A with --detail latency; "
        "B with --detail stages",
    ]
    one, two = (replace(here, mounts=mounts) for mounts in (("/a", "/b"), ("/b",)))
    assert unlike((("A", one), ("B", two), ("C", here))) == []  # both have /b
    other = replace(here, mounts=("/c",))
    assert unlike((("A", one), ("B", other))) == [
        "recorded on different mounts: A on /a, /b; B on /c"
    ]
