"""Folded stacks: reading, writing, comparing; an error message is one line."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetools import flame

# A line that flamegraph.pl accepts, after its own pattern: a stack, blank, a number.
LINE = re.compile(r"^(?P<stack>\S.*?) (?P<weight>[0-9]+(?:\.[0-9]*)?)$")


def test_parse_adds_up_equal_stacks() -> None:
    graph = flame.parse(["a;b 5", "", "# comment", "a;c;d 7", "a;b 3 ", "with space;b 1.5"])
    assert graph == flame.Folded({"a;b": 8, "a;c;d": 7, "with space;b": 1.5})
    assert graph.total == 16.5


def test_parse_two_counts_is_a_difference() -> None:
    graph = flame.parse(["a;b 5 7", "a;c 0 2", "a;b 1 0"])
    assert graph == flame.Diff({"a;b": (6, 7), "a;c": (0, 2)})
    assert graph.before == flame.Folded({"a;b": 6})
    assert graph.after == flame.Folded({"a;b": 7, "a;c": 2})


@pytest.mark.parametrize(
    "lines, message",
    [
        ([], "in: no stacks in it"),
        (["# only this", "  "], "in: no stacks in it"),
        (["a;b 0"], "in: all counts are 0"),
        (["a 0 0"], "in: all counts are 0"),
        (["a 1", "a;b"], "in, line 2: no count at its end"),
        (["a b"], "in, line 1: no count at its end"),
        (["12"], "in, line 1: no stack before the count"),
        (["a 1", "", "a nan"], "in, line 3: the count is not a number"),
        (["a inf"], "in, line 1: the count is not a number"),
        (["a 1e999"], "in, line 1: the count is not a number"),
        (["a -3"], "in, line 1: the count is negative"),
        (["a 1_0"], "in, line 1: the count is not a number"),
        (["a 1", "a 1 2"], "in, line 2: two counts, where the lines before have one"),
        (["a 1 2", "a 1"], "in, line 2: one count, where the lines before have two"),
        (["a;" * 4096 + "b 1"], "in, line 1: deeper than 4,096 frames"),
        (["a" * (1 << 20) + " 1"], "in, line 1: longer than 1,048,576 characters"),
    ],
)
def test_parse_says_what_is_wrong(lines: list[str], message: str) -> None:
    with pytest.raises(flame.Error) as error:
        flame.parse(lines, name="in")
    assert str(error.value) == message


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf])
def test_weights_are_checked(weight: float) -> None:
    with pytest.raises(flame.Error, match="weights must be finite and not negative"):
        flame.Folded({"a": weight})
    with pytest.raises(flame.Error, match="weights must be finite and not negative"):
        flame.Diff({"a": (1, weight)})


def test_weights_that_overflow() -> None:
    with pytest.raises(flame.Error, match="too much for a picture"):
        flame.Folded({"a": 1 << 54, "b": 1 << 55})


def test_names_are_cleaned() -> None:
    assert flame.stack(["a;b", "c"]) == "a:b;c"
    graph = flame.Folded({"a\nb\0": 1, "a?b?": 2, "\ud800": 3})
    assert graph.stacks == {"a?b?": 3, "?": 3}
    assert flame.Diff({"a\n": (1, 2), "a?": (3, 4)}).stacks == {"a?": (4, 6)}


def test_folded_is_sorted_by_frames() -> None:
    graph = flame.Folded({"a;b;c": 1, "a;b!": 2, "a;b": 3})
    assert flame.folded(graph) == "a;b 3\na;b;c 1\na;b! 2\n"


def test_folded_of_a_difference() -> None:
    graph = flame.diff(flame.Folded({"a;b": 1}), flame.Folded({"a;c": 2.5}))
    assert flame.folded(graph) == "a;b 1 0\na;c 0 2.5\n"


def test_diff_wants_one_unit() -> None:
    with pytest.raises(flame.Error, match="cannot compare us with samples"):
        flame.diff(flame.Folded({"a": 1}, "us"), flame.Folded({"a": 1}))


def test_scale_of_a_difference() -> None:
    before, after = flame.Folded({"a": 10}), flame.Folded({"a": 15, "b": 5})
    assert flame.diff(before, after).scale == 1
    assert flame.diff(before, after, normalise=True).scale == 2


@given(
    st.dictionaries(
        st.lists(st.text(min_size=1), min_size=1, max_size=5).map(flame.stack),
        st.integers(0, 1 << 40) | st.floats(0, 1e6),
        min_size=1,
    )
)
def test_folded_text_is_as_the_scripts_want_it(stacks: dict[str, float]) -> None:
    graph = flame.Folded(stacks)
    lines = flame.folded(graph).splitlines()
    assert len(lines) == len(graph.stacks)
    for line in lines:
        # The line has one number at the end, none before it, and no comment.
        parts = line.rsplit(" ", 2)
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", parts[-1])
        assert len(parts) < 3 or not re.fullmatch(r"[0-9]+(\.[0-9]*)?", parts[1])
        assert not line.startswith("# ")


def names(letters: str) -> st.SearchStrategy[str]:
    return st.text(letters, min_size=1).map(lambda name: " ".join(name.split())).filter(bool)


@given(st.dictionaries(names("abc;_. é"), st.integers(1, 1 << 40), min_size=1))
def test_folded_text_reads_back(stacks: dict[str, float]) -> None:
    graph = flame.Folded(stacks)
    assert flame.parse(flame.folded(graph).splitlines()) == graph


@given(st.dictionaries(names("a; 1.#"), st.integers(1, 1 << 40), min_size=1))
def test_no_weight_is_misread(stacks: dict[str, float]) -> None:
    """Blanks before what looks like a count, and what looks like a comment, are replaced."""
    graph = flame.Folded(stacks)
    again = flame.parse(flame.folded(graph).splitlines())
    assert isinstance(again, flame.Folded) and again.total == graph.total
    assert {name.replace("_", " ") for name in again.stacks} <= {
        name.replace("_", " ") for name in [*stacks, *(f"{name} " for name in stacks)]
    }


@given(st.lists(st.text() | st.from_regex(r"[a-c; ]{0,6} [0-9.e+-]{0,5}( [0-9]{1,3})?")))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    try:
        graph = flame.parse(lines, name="in")
    except flame.Error as error:
        assert str(error).startswith("in")
        assert "\n" not in str(error)
    else:
        flame.folded(graph)
        flame.html(graph)
        flame.speedscope(graph)
        flame.firefox(graph)
        if not isinstance(graph, flame.Diff) or graph.after.total:
            flame.svg(graph)


def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fusetools.flame", *args],
        input=stdin,
        capture_output=True,
        text=True,
    )


def test_flame_works_without_fusetools() -> None:
    """Import all its modules as the top-level package flame, and draw."""
    code = """
import importlib, pkgutil, sys
import flame
for module in pkgutil.iter_modules(flame.__path__):
    importlib.import_module(f"flame.{module.name}")
for name in (".svg", ".html", ".folded", ".speedscope.json", ".firefox.json"):
    assert "main" in flame.drawn(flame.Folded({"main": 1}), name), name
print(sorted(name for name in sys.modules if name.partition(".")[0] == "fusetools"))
"""
    cwd = Path(flame.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("suffix", ["svg", "html", "speedscope.json", "firefox.json", "folded"])
def test_command_line(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "in.folded").write_text("a;b_[k] 5\na;c 7\n")
    out = tmp_path / f"out.{suffix}"
    done = run(str(tmp_path / "in.folded"), "-o", str(out), "--title", "Of <these>", "--kinds")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "b" in out.read_text()


def test_invalid_utf8_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\xff;b 1\n")
    assert flame.read(tmp_path / "in") == flame.Folded({"a\ufffd;b": 1})


def test_a_line_that_never_ends_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "in").open("wb") as file:
        file.truncate(1 << 32)
    with pytest.raises(flame.Error, match="in, line 1: longer than 1,048,576 characters"):
        flame.read(tmp_path / "in")


def test_command_line_stdin_to_stdout() -> None:
    assert run("-", stdin="b 2\na 1\na 1\n").stdout == "a 2\nb 2\n"


@pytest.mark.parametrize(
    "args, stdin, message",
    [
        (["-"], "", "stdin: no stacks in it"),
        (["-"], "a;b 1\nc\n", "stdin, line 2: no count at its end"),
        (["/nonexistent/in"], "", "/nonexistent/in: No such file or directory"),
        (["-", "-o", "x.png"], "a 1", "x.png: no such format; .html, .svg, .folded, "),
        (["-", "-o", "/nonexistent/x.svg"], "a 1", "/nonexistent/x.svg: No such file or dir"),
        (["-", "-o", "x.svg", "--palette", "pink"], "a 1", "no palette pink: aqua, blue"),
        (["-", "-o", "x.svg", "--min-width", "nan"], "a 1", "the least width is in per cent"),
        (["-", "--diff", "-"], "a 1 2", "one of these is a difference already"),
    ],
)
def test_command_line_errors_are_a_line(
    args: list[str], stdin: str, message: str, tmp_path: Path
) -> None:
    if "--diff" in args:
        args[-1] = str(tmp_path / "before")
        (tmp_path / "before").write_text("a 1\n")
    done = run(*args, stdin=stdin)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"flame: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("stacks", [{"a\x1b": 1}, {"a?": 1}])
def test_unprintable_names_in_the_order_of_time(stacks: dict[str, float]) -> None:
    graph = flame.Folded(stacks, order=[("a\x1b", 1)])
    assert list(graph.order) == [("a?", 1)] and "a?" in graph.stacks


def test_an_unknown_stack_in_the_order_of_time() -> None:
    with pytest.raises(flame.Error, match="in order, but none of the stacks: b"):
        flame.Folded({"a": 1}, order=[("b", 1)])


def test_flamegraph_pl_takes_our_text(tmp_path: Path) -> None:
    script = shutil.which("flamegraph.pl")
    if script is None:
        pytest.skip("no flamegraph.pl here: Debian has no package of it")
    graph = flame.Folded({"a;b": 500, "a;b 12": 70, "# x;y": 30, "ü;z": 1.5, "a;b;c d": 22})
    done = subprocess.run(
        [script], input=flame.folded(graph), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    titles = re.findall(r"<title>(\S.*?) \(([0-9,]+) samples", done.stdout)
    assert dict(titles) == {
        "all": "624",
        "a": "592",
        "b": "522",
        "c d": "22",
        "b_12": "70",
        "#_x": "30",
        "y": "30",
        "ü": "2",
        "z": "2",
    }
