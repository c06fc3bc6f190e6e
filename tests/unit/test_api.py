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
    requests, calls = recording.requests(), recording.calls()
    slowest = recording.slowest()
    shown = recording.show(slowest.requests[0].unique or 0)
    results = (requests, calls, recording.stacks("off-cpu"), shown, recording.stages(), slowest)
    for result in (*results, recording.session):
        assert repr(result).startswith(f"<{type(result).__name__}") and len(repr(result)) < 80
    assert repr(calls) == "<Table of demo.data: calls, 7 columns>"


def test_tables_show_names_and_figures() -> None:
    """No part has parts of its own, no column is empty."""
    recording = fusetools.open(DEMO)
    found = recording.hist()
    assert any(h.until_reply for h in found.histograms)
    assert not re.search("until_reply|{|self_time_ns", found._repr_html_())
    stacks = recording.stacks("off-cpu")
    stack, weight = max(stacks.stacks.items(), key=lambda item: item[1])
    assert stacks._repr_html_().split("<tr>")[2] == (
        f"<td>{stack.replace('<', '&lt;').replace('>', '&gt;')}</td><td>{weight}</td></tr>"
    )


def test_names_are_text_in_a_notebook() -> None:
    errors = fusetools.open(DEMO).errors()
    from dataclasses import replace

    first = replace(errors.operations[0], operation="<script>")
    shown = replace(errors, operations=(first,))._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown


def test_the_version_is_one() -> None:
    cargo = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert cargo and cargo[1] == fusetools.__version__
