"""`fusetools hist --over-time`: latency over time."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import golden
import pytest
from columns import Columns
from fixtures import Invoke
from schemas import validate

import fusetools
from fusetools.answers.filters import Filters
from fusetools.render.text.heat import render
from fusetools.results.heat import HeatRow

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"


@pytest.mark.parametrize("operations", [(), ("lookup",), ("read*", "getattr")])
def test_rows_are_the_buckets_of_hist(operations: tuple[str, ...]) -> None:
    recording = fusetools.open(DEMO)
    buckets: Counter[int] = Counter()
    for histogram in recording.hist(*operations, layers=["request"]).histograms:
        buckets.update({bucket.low_ns: bucket.calls for bucket in histogram.buckets})
    found = recording.heat(*operations, columns=7).rows
    assert {row.low_ns: sum(row.requests) for row in found} == {
        row.low_ns: buckets[row.low_ns] for row in found
    }
    assert sum(buckets.values()) == sum(sum(row.requests) for row in found) > 0


@pytest.mark.parametrize("filters", [Filters(), Filters(start_ns=100_000_000, end_ns=400_000_000)])
def test_columns_are_the_begins_of_the_table(filters: Filters) -> None:
    recording = fusetools.open(DEMO)
    table = Columns(recording.requests(filters))
    (slow,) = recording.slowest(most=1, filters=filters).requests
    first = int(table.begin_ns[table.unique == slow.unique][0]) - slow.start_ns
    found = recording.heat(columns=10, filters=filters)
    columns = Counter(
        {at: n for at in range(10) if (n := sum(row.requests[at] for row in found.rows))}
    )
    assert columns == Counter(
        (int(begin) - first - found.start_ns) // found.column_ns for begin in table.begin_ns
    )


def test_printed(run: Invoke) -> None:
    said = run("hist", "-i", str(DEMO), "--over-time")
    golden.check("hist-over-time.txt", said.output)
    assert all(len(line) <= 80 for line in said.output.splitlines())
    value = json.loads(run("hist", "-i", str(DEMO), "--over-time", "--json").output)
    validate(value, "heat")
    none = run("hist", "-i", str(DEMO), "--over-time", "write")
    assert none.output.startswith("no requests of ")
    wrong = run("hist", "-i", str(DEMO), "--over-time", "--by", "comm")
    assert wrong.exit_code == 2 and "--over-time shows requests" in wrong.stderr


def test_more_requests_are_darker() -> None:
    rows = (HeatRow(1024, 2047, (0, 1, 5, 30, 200)), HeatRow(2048, 4095, (1, 0, 0, 0, 0)))
    heat = replace(fusetools.open(DEMO).heat(), start_ns=0, column_ns=10**9, rows=rows)
    said = render(heat).splitlines()
    assert said[1:3] == ["  2.05 us |░    |", "  1.02 us | ░▒▓█|"]
    assert "░ 1 to 3, ▒ 4 to 14, ▓ 15 to 53, █ 54 to 200" in " ".join(said)
    alone = replace(heat, rows=(HeatRow(0, 1, (0, 1)),))
    assert "requests in 1.00 s: ░ 1;" in render(alone)
    seven = replace(heat, column_ns=10**9, rows=(HeatRow(1, 1, (1, 2, 4, 7)),))
    assert "░ 1, ▒ 2, ▓ 3 to 4, █ 5 to 7" in " ".join(render(seven).split())
