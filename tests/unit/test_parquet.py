"""Tables as Parquet: what is in the files is what the recording's tables and answers say."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fixtures import Invoke
from hypothesis import given
from hypothesis import strategies as st

import fusetools
from fusetools import extras
from fusetools.answers import parquet, tables
from fusetools.errors import Error
from fusetools.reasons import Code
from fusetools.results.buckets import BUCKETS, bucket, last

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"


@pytest.fixture(scope="module")
def recording() -> fusetools.Recording:
    return fusetools.open(DEMO)


@pytest.fixture(scope="module")
def folder(recording: fusetools.Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site")
    recording.tables(str(to), labels={"rack": "r07", "version": "2.11.2"})
    return to


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def read(folder: Path, table: str) -> list[dict[str, Any]]:
    (path,) = [path for path in files(folder) if table in path.parts]
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
    return rows


@pytest.mark.parametrize("name", ["requests", "calls", "waits"])
def test_rows_are_those_of_the_table(
    recording: fusetools.Recording, folder: Path, name: str
) -> None:
    made = recording.waits(everything=True) if name == "waits" else getattr(recording, name)()
    expected = pa.table(made).to_pylist()
    rows = read(folder, name)
    assert len(rows) == len(expected) > 300
    for row, wanted in zip(rows, expected):
        assert {column: row[column] for column in wanted} == wanted
        assert (row["host"], row["date"]) == ("demo", "2026-11-25")


def test_stacks_are_those_of_the_flame_graphs(recording: fusetools.Recording, folder: Path) -> None:
    rows = read(folder, "stacks")
    for graph in ("on-cpu", "off-cpu"):
        expected = recording.stacks(graph, everything=True)
        assert expected.unit in ("us", "ns")
        factor = 1000 if expected.unit == "us" else 1
        assert {r["stack"]: r["time_ns"] for r in rows if r["graph"] == graph} == {
            stack: round(weight * factor) for stack, weight in expected.stacks.items()
        }


def test_the_session_has_the_answers_sums(recording: fusetools.Recording, folder: Path) -> None:
    (row,) = read(folder, "sessions")
    facts, why = recording.counts().facts, recording.why()
    assert row["begun"] == facts.requests.begun and row["matched"] == facts.requests.matched
    assert row["seconds"] == facts.seconds and row["kernel"] == facts.kernel
    assert dict(row["labels"]) == {"rack": "r07"} and row["version"] == "2.11.2"
    assert row["waited_ns"] == why.waited_ns
    assert [(f["code"], f["time_ns"]) for f in row["findings"]] == [
        (f.reason.code.value, f.time_ns) for f in why.findings
    ]
    # 2026-11-25T10:58:57Z
    assert row["began_ns"] == 1_795_604_337 * 10**9
    requests = read(folder, "requests")
    within = [r["time_ns"] - row["began_ns"] for r in requests if r["time_ns"]]
    assert len(within) > 300 and 0 <= min(within) <= max(within) <= 1e9 * (facts.seconds + 1)


def test_outcomes_are_those_of_errors(recording: fusetools.Recording, folder: Path) -> None:
    found: Counter[str] = Counter()
    for row in read(folder, "requests"):
        found[row["operation"]] += bool(row["negative"])
    expected = {o.operation: o.negative or 0 for o in recording.errors().operations}
    assert {o: n for o, n in found.items() if n} == {o: n for o, n in expected.items() if n}


def test_buckets_are_those_of_the_core(folder: Path) -> None:
    rows = [row for row in read(folder, "requests") if row["bucket"] is not None]
    assert len(rows) > 300
    for row in rows:
        assert row["bucket"] == bucket(row["duration_ns"])
        assert row["whole_bucket"] == bucket(row["whole_ns"])
        stages = [ns for name, ns in row.items() if name.startswith("stage_") and _whole(name)]
        assert row["whole_ns"] == sum(filter(None, stages))


def _whole(name: str) -> bool:
    return not name.endswith(("_blocked_ns", "_runnable_ns"))


@given(st.integers(0, 2**63 - 1))
def test_a_bucket_holds_its_durations_and_no_wider_span(ns: int) -> None:
    number = bucket(ns)
    assert last(number - 1) < ns <= last(number) or ns == number == 0
    assert last(number) - ns <= ns / BUCKETS
    assert bucket(last(number)) == number and bucket(last(number) + 1) == number + 1


def test_a_second_export_replaces_the_first(
    recording: fusetools.Recording, folder: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        recording.tables(str(tmp_path))
        assert [p.relative_to(tmp_path) for p in files(tmp_path)] == [
            p.relative_to(folder) for p in files(folder)
        ]
    assert {path.parts[len(tmp_path.parts)] for path in files(tmp_path)} == {*parquet.TABLES}


def test_metadata_names_table_and_version(folder: Path) -> None:
    for path in files(folder):
        table = path.relative_to(folder).parts[0]
        assert pq.read_schema(path).metadata[parquet.KEY] == f"{table} {parquet.SCHEMA}".encode()


KILLED = """
import os, signal, sys
import fusetools
from fusetools.answers import parquet
written = parquet._written
def killed(descriptor, table, batches):
    rows = written(descriptor, table, batches)
    if table == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows
parquet._written = killed
fusetools.open(sys.argv[1]).tables(sys.argv[2])
"""


@pytest.mark.parametrize("table", ["waits", "sessions"])
def test_a_killed_export_leaves_no_file_that_is_read(tmp_path: Path, table: str) -> None:
    command = [sys.executable, "-c", KILLED, str(DEMO), str(tmp_path), table]
    assert subprocess.run(command, check=False).returncode == -9
    left = files(tmp_path)
    assert left and all(path.name.startswith(".") for path in left)
    assert not any(path.suffix == ".parquet" for path in left)


def test_a_failed_export_leaves_no_file(
    recording: fusetools.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = parquet._written

    def full(descriptor: int, table: str, batches: Any) -> int:
        if table == "calls":
            raise OSError(28, "No space left on device")
        return written(descriptor, table, batches)

    monkeypatch.setattr(parquet, "_written", full)
    with pytest.raises(Error, match="cannot write"):
        recording.tables(str(tmp_path))
    assert not files(tmp_path)


def test_a_table_that_cannot_be_made_is_named(
    recording: fusetools.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise Error("it holds no switches of tasks", "perf adds up waits")

    monkeypatch.setattr(tables, "waits", none)
    result = recording.tables(str(tmp_path))
    (missing,) = result.missing
    assert (missing.code, missing.subject["table"]) == (Code.NO_TABLE, "waits")
    assert "waits" not in result.rows and not (tmp_path / "waits").exists()


def test_anonymised_files_hold_no_path(
    recording: fusetools.Recording, folder: Path, tmp_path: Path
) -> None:
    hashed = {}
    for name, key in (("a", b"k" * 16), ("b", b"k" * 16), ("c", b"x" * 64)):
        (tmp_path / f"{name}.key").write_bytes(key)
        recording.tables(str(tmp_path / name), key=str(tmp_path / f"{name}.key"))
        hashed[name] = read(tmp_path / name, "requests")
    plain = read(folder, "requests")
    paths = {row["path"] for row in plain} - {None, ""}
    assert len(paths) > 30
    assert [row["path"] for row in hashed["a"]] == [row["path"] for row in hashed["b"]]
    for name in ("a", "c"):
        new = {row["path"] for row in hashed[name]} - {None, ""}
        # Different files stay different, and keep their depth.
        assert len(new) == len(paths)
        assert Counter(p.count("/") for p in new) == Counter(p.count("/") for p in paths)
        words = {word for path in paths for word in path.split("/") if len(word) > 3}
        text = repr([read(tmp_path / name, table) for table in parquet.TABLES])
        assert not [word for word in {*words, "/mnt/sample"} if word in text]
    assert {row["path"] for row in hashed["a"]}.isdisjoint(
        {row["path"] for row in hashed["c"]} - {None, ""}
    )


@pytest.mark.parametrize(
    ("key", "why"), [(None, "No such file"), (b"short", "has 5 bytes"), (b"k" * 65, "more than 64")]
)
def test_a_wrong_key(run: Invoke, tmp_path: Path, key: bytes | None, why: str) -> None:
    path = tmp_path / "site.key"
    if key is not None:
        path.write_bytes(key)
    form = ("--format", "parquet", "-o", str(tmp_path / "out"))
    result = run("export", "-i", str(DEMO), *form, "--anonymise", str(path))
    assert result.exit_code == 1 and why in result.output and not (tmp_path / "out").exists()


def test_the_command(run: Invoke, tmp_path: Path) -> None:
    form = ("--format", "parquet", "-o", str(tmp_path))
    result = run("export", "-i", str(DEMO), *form, "--label", "rack=r07")
    assert result.exit_code == 0 and "330 requests" in result.output
    assert dict(read(tmp_path, "sessions")[0]["labels"]) == {"rack": "r07"}
    for wrong in (("--label", "rack"), ("--label", "Ra ck=r07")):
        assert run("export", "-i", str(DEMO), *form, *wrong).exit_code == 2
    only = run("export", "-i", str(DEMO), "--label", "a=b", "--format", "csv", "-o", "x.csv")
    assert only.exit_code == 2 and "--format parquet" in only.output


def test_without_pyarrow(
    recording: fusetools.Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(Error) as raised:
        recording.tables(str(tmp_path))
    assert raised.value.fix == extras.FLEET and not files(tmp_path)
