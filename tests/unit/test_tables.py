"""Requests, calls and stacks as Arrow tables, in the libraries that take them."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from columns import Columns
from fixtures import Invoke

import fusetools
from fusetools import Filters

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples/recordings/demo.data"


@pytest.fixture(scope="module")
def recording() -> fusetools.Recording:
    return fusetools.open(DEMO)


def test_marks_are_in_order(recording: fusetools.Recording) -> None:
    requests = Columns(recording.requests())
    assert requests.fated("matched").all()
    # All but the releases wait, and go through all of it.
    waits = requests.waits == 1
    released = requests.of("release") | requests.of("releasedir")
    assert released.sum() > 30 and (waits != released).all()
    order = ("begin", "read", "callback_enter", "reply", "end", "waking", "runs")
    times = [getattr(requests, f"{name}_ns")[waits].astype(np.int64) for name in order]
    assert all((b >= a).all() and a.all() for a, b in zip(times, times[1:]))
    first = requests.nth[waits] == 0
    assert ((requests.sys_enter_ns[waits] > 0) == first).all()
    assert ((requests.resumed_ns[waits] > 0) == ~first).all()


def test_a_capsule_has_the_interfaces_names(recording: fusetools.Recording) -> None:
    for table in (recording.requests(), recording.calls()):
        assert '"arrow_array_stream"' in repr(table.__arrow_c_stream__())
        assert '"arrow_schema"' in repr(table.__arrow_c_schema__())


def test_a_column_names_its_unit(recording: fusetools.Recording) -> None:
    pa = pytest.importorskip("pyarrow")
    for table in (recording.requests(), recording.calls()):
        schema = pa.schema(table)
        assert tuple(schema.names) == table.columns
        for field in schema:
            if pa.types.is_int64(field.type):
                assert field.name.endswith(("_ns", "_bytes")) or field.name == "nth"
            elif field.name.endswith(("_ns", "_bytes")):
                pytest.fail(f"{field.name} is {field.type}")
            elif not pa.types.is_dictionary(field.type):
                assert str(field.type) in ("uint64", "int32", "bool")


def maxima(recording: fusetools.Recording) -> dict[str, tuple[int, int]]:
    """Return the number and the longest duration of each operation's requests, as in hist."""
    series = recording.hist(layers=("request",)).histograms
    return {h.operation: (h.count, int(h.max_ns or 0)) for h in series}


def test_pyarrow(recording: fusetools.Recording) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table(recording.requests())
    rows = table.group_by("operation").aggregate([("duration_ns", "count"), ("duration_ns", "max")])
    found = {row["operation"]: row for row in rows.to_pylist()}
    assert {
        name: (row["duration_ns_count"], row["duration_ns_max"]) for name, row in found.items()
    } == maxima(recording)
    # Each use is a pass of its own.
    requests = recording.requests()
    assert pa.table(requests).num_rows == pa.table(requests).num_rows == table.num_rows


def test_polars(recording: fusetools.Recording) -> None:
    pl: Any = pytest.importorskip("polars")
    requests = pl.DataFrame(recording.requests())
    longest = pl.col("duration_ns")
    found = requests.group_by("operation").agg(longest.count().alias("n"), longest.max())
    assert {str(name): (n, ns) for name, n, ns in found.iter_rows()} == maxima(recording)


def test_pandas(recording: fusetools.Recording) -> None:
    pd = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    calls = pa.table(recording.calls()).to_pandas()
    assert isinstance(calls, pd.DataFrame)
    counts = recording.counts("^cvmfs_").counts
    named = calls.function.astype(str).value_counts()
    assert {c.function: c.count for c in counts if c.count} == {
        name: n for name, n in named.items() if name.startswith("cvmfs_")
    }
    requests = pa.table(recording.requests()).to_pandas()
    found = requests.groupby("operation", observed=True).duration_ns.agg(["count", "max"])
    assert {name: (row["count"], row["max"]) for name, row in found.iterrows()} == maxima(recording)


def test_duckdb(recording: fusetools.Recording) -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    requests = recording.requests()
    assert requests.columns  # used below, by its name
    query = "select operation, count(duration_ns), max(duration_ns) from requests group by all"
    rows = duckdb.sql(query).fetchall()
    assert {name: (n, ns) for name, n, ns in rows} == maxima(recording)


EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["polars", "pandas", "duckdb"])
def test_the_examples_of_the_docs_run(
    example: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for library in re.findall(r"^import (polars|pyarrow|duckdb)$", example, re.MULTILINE):
        pytest.importorskip(library)
    shutil.copy(DEMO, tmp_path / "perf.data")
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert "lookup" in capsys.readouterr().out or "duckdb" in example


def test_the_table_is_the_export(
    recording: fusetools.Recording, run: Invoke, tmp_path: Path
) -> None:
    """And its stages are those of `stages`."""
    pa = pytest.importorskip("pyarrow")
    out = tmp_path / "rows.csv"
    assert run("export", "-i", str(DEMO), "-o", str(out)).exit_code == 0
    exported = list(csv.DictReader(out.open()))
    rows = pa.table(recording.requests()).to_pylist()
    assert len(rows) == len(exported) > 300

    def cell(value: object) -> str:
        text = "" if value is None else str(value)
        return text.lower() if isinstance(value, bool) else text

    for row, expected in zip(rows, exported):
        assert {name: cell(row[name]) for name in expected} == expected
    for o in recording.stages().operations:
        own = [r for r in rows if r["operation"] == o.operation and r["waits"] == o.waits]
        assert len(own) == o.matched
        # A stage that cannot be separated from the next is part of it.
        totals: Counter[str] = Counter()
        for stage in o.stages:
            place = f"stage_{stage.name.split('+')[-1]}"
            totals[f"{place}_ns"] += stage.total_ns
            for part in ("blocked", "runnable"):
                if f"{place}_{part}_ns" in rows[0]:
                    totals[f"{place}_{part}_ns"] += stage.parts_ns.get(part, 0)
        for name, total in totals.items():
            assert sum(r[name] or 0 for r in own) == total, name
    assert {row["mount"] for row in rows} == {"/mnt/sample"}


@pytest.mark.parametrize("patterns", [(), ("lookup",)])
def test_waits_are_those_of_the_flame_graph(
    recording: fusetools.Recording, patterns: tuple[str, ...]
) -> None:
    pa = pytest.importorskip("pyarrow")
    waits = pa.table(recording.waits(*patterns)).to_pylist()
    graph = recording.stacks("off-cpu", *patterns)
    assert sum(row["duration_ns"] for row in waits) == graph.total_ns
    states: Counter[str] = Counter()
    stacks: Counter[str] = Counter()
    for row in waits:
        states[row["state"]] += row["duration_ns"]
        leaf = {"runnable": ";[runnable]", "preempted": ";[preempted]"}.get(row["state"], "")
        leaf = ";[blocked or runnable]" if row["state"] == "blocked_or_runnable" else leaf
        stacks[";".join(filter(None, (row["comm"], row["stack"]))) + leaf] += row["duration_ns"]
    assert states == {state: ns for state, ns in graph.states_ns.items() if ns}
    assert {stack: ns / 1000 for stack, ns in stacks.items()} == graph.stacks
    assert graph.daemons_ns == sum(r["duration_ns"] for r in waits if r["side"] == "daemon")
    # The graph is a table, too.
    rows = pa.table(graph).to_pylist()
    assert {row["stack"]: row["time_ns"] for row in rows} == stacks


def test_the_order_of_a_flame_graph_is_that_of_the_waits(recording: fusetools.Recording) -> None:
    pa = pytest.importorskip("pyarrow")
    threads: dict[int, list[dict[str, Any]]] = {}
    waits = pa.table(recording.waits()).to_pylist()
    for row in sorted(waits, key=lambda row: int(row["begin_ns"])):
        threads.setdefault(row["tid"], []).append(row)
    assert len(threads) > 2
    wanted = []
    for rows in threads.values():
        last = None
        for row in rows:
            leaf = {"runnable": ";[runnable]", "preempted": ";[preempted]"}.get(row["state"], "")
            leaf = ";[blocked or runnable]" if row["state"] == "blocked_or_runnable" else leaf
            stack = ";".join(filter(None, (row["comm"], row["stack"]))) + leaf
            if stack == last:
                wanted[-1][1] += row["duration_ns"]
            else:
                wanted.append([stack, row["duration_ns"]])
            last = stack
    graph = recording.stacks("off-cpu")
    assert [[stack, round(us * 1000)] for stack, us in graph.order] == wanted


def test_filters(recording: fusetools.Recording) -> None:
    whole = Columns(recording.requests())
    middle = int(recording.counts().facts.seconds / 2 * 1e9)
    parts = [
        len(Columns(recording.requests(filters)))
        for filters in (Filters(end_ns=middle), Filters(start_ns=middle))
    ]
    assert sum(parts) == len(whole) and min(parts) > 0
    lookups = Columns(recording.calls("cvmfs_lookup"))
    assert set(lookups.function) == {"cvmfs_lookup"}


def test_a_recording_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    shutil.copy(DEMO, path)
    requests = fusetools.open(path).requests()
    path.unlink()
    with pytest.raises(fusetools.Error, match="cannot read"):
        requests.__arrow_c_stream__()


def test_nothing_but_click_is_needed() -> None:
    """A table can be made, and its columns listed, without any library."""
    code = (
        f"import sys, fusetools; r = fusetools.open({str(DEMO)!r}); "
        "print(len(r.requests().columns), len(r.calls().columns)); r.calls().__arrow_c_stream__(); "
        "assert not {'numpy', 'pyarrow', 'pandas', 'polars'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "7"
