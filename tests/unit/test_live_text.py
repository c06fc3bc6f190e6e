"""top and trace as text, and the shell patterns of --path."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetools.core import matching
from fusetools.figures import duration
from fusetools.live.top import Watch
from fusetools.patterns import expression
from fusetools.reasons import Code, Reason
from fusetools.render.text import top as top_text
from fusetools.render.text import trace as trace_text
from fusetools.results.top import Row, Top, UnderWay
from fusetools.results.trace import Ended

ROW = Row(
    label="lookup",
    id=None,
    mount="",
    requests=1500,
    per_second=1500.0,
    waited_seconds=0.25,
    queue_ns=12_000.0,
    rtt_ns=88_000.0,
    exec_ns=100_000.0,
    p50_ns=90_000,
    p99_ns=400_000,
    max_ns=2_000_000,
    bytes=0,
    transfers=0,
    under_way=3,
    errors=7,
)
ENDED = Ended(
    operation="read",
    mount="/mnt",
    path="/mnt/a b",
    begin_ns=1,
    ended_seconds=1_700_000_000.25,
    duration_ns=1_500_000,
    queue_ns=None,
    error="",
    negative=False,
    comm="cat",
    pid=7,
    tid=8,
    unique=2,
    daemon_thread=9,
    bytes=4096,
    offset_bytes=8192,
    answered_bytes=6,
)
OLDEST = UnderWay("read", 75_000_000_000, "/mnt", None, "cat\x1b[2J", 7, 8, 2, None, False)
TOP = Top(
    by="operation",
    sort="waited",
    start_ns=10**9,
    end_ns=3 * 10**9,
    overall=ROW,
    rows=(ROW,),
    groups=1,
    oldest=(),
    under_way=3,
    before=0,
    lost=0,
    left_out=0,
    perf_cpu=0.012,
    own_cpu=0.006,
    pair_cost_ns=1_300,
    missing=(),
)


def test_an_interval() -> None:
    said = top_text.lines(TOP)
    assert said[0] == (
        "1,500 op/s, exec 100 us, p50 90.0 us, p99 400 us, max 2.00 ms, 3 in flight, 7 errors"
    )
    assert said[1] == (
        "observing takes 1.8 % of a CPU (perf 1.2, fusetools 0.6); "
        "1.30 us for the probes of each callback"
    )
    head, row = said[3:]
    # 0.25 s of waiting in an interval of 2 s.
    heads = "operation op/s kB/s kB/op queue RTT exec p50 p99 max wait* now err"
    assert re.sub(" +", " ", head) == heads
    assert row.split("  ")[0] == "lookup"
    assert re.sub(" +", " ", row) == (
        "lookup 1,500 - - 12.0 us 88.0 us 100 us 90.0 us 400 us 2.00 ms 0.12 3 7"
    )


def test_the_row_for_which_callers_wait_most_is_named() -> None:
    waits = replace(ROW, label="open", waited_seconds=3.0)
    rest = replace(ROW, waited_seconds=1.0)
    whole = replace(ROW, waited_seconds=4.0)
    verdict = replace(TOP, rows=(rest, waits), overall=whole).verdict
    assert verdict is not None and verdict.code == Code.TOP_MOST
    assert verdict.subject == {"by": "operation", "label": "open"}
    assert verdict.figures == {"time_share": 0.75, "callers": 2.0, "queue_share": 0.12}
    # Nobody waits much, or no row stands out.
    assert TOP.verdict is None
    others = tuple(replace(rest, label=str(n)) for n in range(4))
    assert replace(TOP, rows=others, overall=whole).verdict is None


def test_bytes_are_of_those_that_carry_some() -> None:
    row = replace(ROW, bytes=3_000_000, transfers=300)
    figures = top_text.lines(replace(TOP, rows=(row,), overall=row))
    assert "1,500 kB/s" in figures[0]
    assert figures[-1].split()[2:4] == ["1,500", "10.0"]


def test_an_idle_interval_is_called_so() -> None:
    idle = replace(TOP, rows=(), groups=0, oldest=())
    assert top_text.lines(idle)[-1].startswith("no request was sent or answered in ")


def test_unknown_values_have_no_figure() -> None:
    row = replace(ROW, queue_ns=None, rtt_ns=None, under_way=None, requests=0)
    cells = top_text.lines(replace(TOP, rows=(row,)))[-1].split()
    assert cells[4:6] == ["-", "-"] and cells[-2] == "-"


@pytest.mark.parametrize("columns", [40, 80, 109, 110, 160])
def test_lines_are_no_wider_than_the_screen(columns: int) -> None:
    """Sums are wrapped; in the table, names of files keep their ends, others their beginnings."""
    long = replace(ROW, label="/mnt/" + "x" * 200 + "/end")
    for by in ("file", "user"):
        screen = top_text.lines(replace(TOP, by=by, rows=(long,)), columns)
        sums, table = screen[: screen.index("")], screen[screen.index("") + 1 :]
        assert max(map(len, sums)) <= columns
        joined = " ".join(" ".join(sums).split())
        assert joined == f"{top_text.summary(TOP)} {top_text.cost(TOP)}".replace("  ", " ")
        body = len(table[1]) - len(table[1].split("  ")[0])
        assert max(map(len, table)) <= max(columns, body + 10)
        name = table[1].split("  ")[0].strip()
        assert (name.startswith("…") and name.endswith("/end")) == (by == "file")
        assert (name.startswith("/mnt/") and name.endswith("…")) == (by == "user")
        assert ("kB/s" in table[0]) == (columns >= 110)


def test_waiting_requests_come_first_without_escapes() -> None:
    said = top_text.lines(replace(TOP, oldest=(OLDEST, replace(OLDEST, unsure=True))))
    head, first, second = said[3:6]
    assert head.split()[:2] == ["in", "flight"]
    assert "1 m" in first or "75" in first
    assert "\x1b" not in "".join(said) and "/mnt" in first
    assert " ?" in second and " ?" not in first


def test_dropped_requests_are_reported() -> None:
    said = top_text.lines(replace(TOP, lost=1, left_out=2000))
    assert said[2] == (
        "1 event lost: the figures are too low; 2,000 requests left out: too many in one interval"
    )
    assert "1 event lost" in top_text.line(replace(TOP, lost=1))
    assert "lost" not in top_text.line(TOP) and "left out" not in "".join(top_text.lines(TOP))
    assert top_text.lines(replace(TOP, groups=31))[-1] == "and 30 more rows"
    missing = Reason(
        Code.OTHER, {"what": "daemon of /mnt", "why": "it is \x1bstripped"}, layer="daemon"
    )
    (line,) = [one for one in top_text.lines(replace(TOP, missing=(missing,))) if "miss" in one]
    assert line.startswith("missing: daemon of /mnt: it is ") and "\x1b" not in line


def test_an_interval_in_one_line() -> None:
    said = top_text.line(replace(TOP, oldest=(OLDEST,)))
    assert said.count("\n") == 1 and re.match(r"\d\d:\d\d:\d\d 1,500 op/s, ", said)
    assert said.rstrip().endswith(f"7 errors, the oldest for {duration(OLDEST.age_ns)}")


def test_processes_and_threads_have_their_numbers() -> None:
    row = replace(ROW, label="cat\n", id=77, mount="/mnt")
    (line,) = top_text.lines(replace(TOP, by="process", rows=(row,)))[4:]
    assert line.startswith("cat\\n (77) /mnt  ")


def test_an_ended_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        said = trace_text.line(ENDED)
        assert said == (
            "22:13:20.250000    1.50 ms  read         cat (7)                 /mnt/a b"
            "  6 of 4,096 bytes at 8,192\n"
        )
        columns = [trace_text.HEAD.index(name) for name in ("time", "operation", "caller", "path")]
        assert [said.index(text) for text in ("read", "cat", "/mnt")] == columns[1:]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_ended_request_of_which_little_is_known() -> None:
    part = replace(ENDED, bytes=None, offset_bytes=None)
    assert trace_text.line(part).endswith("  6 bytes\n")
    bare = replace(part, path=None, comm="", pid=None, answered_bytes=None)
    assert re.split(" {2,}", trace_text.line(bare).rstrip())[2:] == [
        "read",
        "-",
        "/mnt (path not known)",
    ]
    assert trace_text.line(replace(bare, error="EIO")).endswith("  EIO\n")
    assert trace_text.line(replace(bare, negative=True)).endswith("  no such file\n")
    hostile = trace_text.line(replace(ENDED, comm="\x1b]0;x\a", path="/mnt/a\nb"))
    assert hostile.count("\n") == 1 and "\x1b" not in hostile


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("/mnt/*.root", ["/mnt/a.root", "/mnt/a/b.root"], ["/mnt/aXroot", "x/mnt/a.root"]),
        ("*/dir-0?/[a-c]*", ["/m/dir-01/a", "/m/dir-01/cx"], ["/m/dir-01/d", "/m/dir-0/a"]),
        ("[!a]x", ["bx", "^x"], ["ax"]),
        ("[]]", ["]"], ["["]),
        ("[!]]", ["["], ["]"]),
        ("[a", ["[a"], ["a"]),
        ("a+(b)|c.\\d", ["a+(b)|c.\\d"], ["aab", "c.1"]),
        ("[a^~&&b]", ["^", "&", "~", "b"], ["x"]),
        ("*", ["", "a\nb"], []),
    ],
)
def test_patterns(pattern: str, fits: list[str], fits_not: list[str]) -> None:
    assert matching(expression(pattern), fits) == [True] * len(fits)
    assert matching(expression(pattern), fits_not) == [False] * len(fits_not)


LETTERS = "ab]/*?[!-^\\.\n"


@given(st.text(LETTERS, max_size=8), st.lists(st.text(LETTERS, max_size=6), max_size=5))
def test_patterns_are_those_of_the_shell(pattern: str, names: list[str]) -> None:
    """As Python's fnmatch, except for an invalid range ("z-a"), which is an error."""
    try:
        found = matching(expression(pattern), names)
    except ValueError:
        return
    assert found == [fnmatchcase(name, pattern) for name in names]


@pytest.mark.parametrize(
    ("pattern", "names"), [("[+--]", "+,-"), ("[a-c-]", "abc-"), ("[!--0]", "a+"), ("[&&]", "&")]
)
def test_a_dash_or_two_in_brackets(pattern: str, names: str) -> None:
    assert matching(expression(pattern), [*names]) == [True] * len(names)


def test_requests_from_before_it_was_started_are_in_flight_too() -> None:
    """On a hanging mount no request begins or ends."""
    hung = replace(TOP, before=2, under_way=0)
    assert "0 in flight, 2 more since before (see fusetools stuck)" in top_text.summary(hung)
    for before in (0, None):
        assert "before" not in top_text.summary(replace(TOP, before=before))


def test_a_short_difference_of_counts_is_no_request() -> None:
    waiting, seen = iter([5, 9, 4, 3, 3]), iter([2, 6, 2, 0, 3])

    class Requests:
        def under_way(self, least: int, most: int) -> tuple[list[object], int]:
            return [], next(seen)

    watch = object.__new__(Watch)
    watch.mounts = {40: "/mnt/a"}
    watch.stream = SimpleNamespace(  # type: ignore[assignment]
        requests=Requests(), waiting=lambda: {40: next(waiting)}
    )
    watch._differences = []
    found: list[int | None] = []
    for _ in range(5):
        watch._count_before()
        found.append(watch._before)
    assert found == [None, None, None, 2, 0]
