"""The Python API as users see it."""

from __future__ import annotations

import re
from pathlib import Path

import fusetools

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples/recordings/demo.data"


def test_results_show_themselves() -> None:
    recording = fusetools.open(DEMO)
    assert re.fullmatch(r"<Recording .*demo\.data, Linux [^,]+, /\S+>", repr(recording))
    found = recording.hist(filters=fusetools.Filters(start_ns=0))
    assert repr(found) == f"<Histograms of demo.data: {len(found.histograms)} histograms>"
    shown = found._repr_html_()
    assert shown.count("<tr>") == 1 + len(found.histograms)
    assert "<th>min_ns</th>" in shown and f"<td>{found.histograms[0].min_ns}</td>" in shown


def test_no_result_shows_itself_at_length() -> None:
    recording = fusetools.open(DEMO)
    columns = recording.requests()
    results = (recording.calls(), columns, recording.stories(), recording.stacks("off-cpu"))
    more = recording.show(int(columns.unique[0])), recording.stages(), recording.slowest()
    for result in (*results, *more, recording.session):
        assert repr(result).startswith(f"<{type(result).__name__}") and len(repr(result)) < 80
    assert repr(columns) == f"<RequestColumns: {len(columns.begin_ns)} rows, 12 columns>"
    shown = columns._repr_html_()
    assert shown.count("<tr>") == 1 + min(len(columns), 50)
    assert "<th>unique</th>" in shown and f"<td>{columns.unique[0]}</td>" in shown


def test_tables_show_names_and_figures() -> None:
    """No number stands for a name, no part has parts of its own, no column is empty."""
    recording = fusetools.open(DEMO)
    calls, stories = recording.calls("lookup"), recording.stories()
    assert "<td>daemon</td><td>cvmfs_lookup</td>" in calls._repr_html_()
    name, fate = stories.operations[stories.operation[0]], stories.fates[stories.fate[0]]
    assert f"<tr><td>{name}</td><td>{stories.opcode[0]}</td><td>{fate}</td>" in (
        stories._repr_html_()
    )
    found = recording.hist()
    assert any(h.until_reply for h in found.histograms)
    assert not re.search("until_reply|{|self_time_ns", found._repr_html_())
    stacks = recording.stacks("off-cpu")
    stack, weight = max(stacks.stacks.items(), key=lambda item: item[1])
    assert stacks._repr_html_().split("<tr>")[2] == (
        f"<td>{stack.replace('<', '&lt;').replace('>', '&gt;')}</td><td>{weight}</td></tr>"
    )


def test_a_column_says_its_unit() -> None:
    """The columns in Python are those of the exported rows, so the other names are not figures."""
    recording = fusetools.open(DEMO)
    stories = recording.stories()
    assert [name for name in stories.columns() if name.endswith("_bytes")]
    for mark in stories.marks:
        assert f"{mark}_ns" in stories.columns()
    plain = {
        *("operation", "opcode", "fate", "waits", "nth", "connection", "unique", "nodeid", "ring"),
        *("error", "pid", "tid", "comm", "daemon_pid", "daemon_tid", "syscall"),
        *("layer", "function"),
    }
    for result in (stories, recording.requests(), recording.calls()):
        figures = result.columns().keys() - plain
        assert figures and all(name.endswith(("_ns", "_bytes")) for name in figures)


def test_names_are_text_in_a_notebook() -> None:
    errors = fusetools.open(DEMO).errors()
    from dataclasses import replace

    first = replace(errors.operations[0], operation="<script>")
    shown = replace(errors, operations=(first,))._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown


def test_the_version_is_one() -> None:
    cargo = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert cargo and cargo[1] == fusetools.__version__
