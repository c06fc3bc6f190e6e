"""Answers about many hosts: equal to those about each recording, and they find known outliers."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import fleet_of
import jsonschema
import pytest
import s3
from fixtures import Invoke

import fusetools
from fusetools import extras
from fusetools.answers.parquet_files import Place
from fusetools.errors import Error
from fusetools.reasons import Code
from fusetools.render.json.schema import schema
from fusetools.render.text import fleet as text

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("ibis", reason="no ibis-framework (it needs Python 3.10)")

from fusetools.answers import fleet  # noqa: E402
from fusetools.answers.fleet import Fleet, percentile  # noqa: E402
from fusetools.results.buckets import bucket, last  # noqa: E402

HOSTS, REQUESTS = 40, 600


@pytest.fixture(scope="module")
def recording() -> fusetools.Recording:
    return fusetools.open(fleet_of.DEMO)


@pytest.fixture(scope="module")
def one(recording: fusetools.Recording, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("one")
    recording.tables(str(folder), labels={"rack": "r07"})
    return Fleet(str(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site")
    fleet_of.make(to, HOSTS, REQUESTS)
    return to


@pytest.fixture(scope="module")
def site(folder: Path) -> Fleet:
    return Fleet(str(folder))


def near(fleet: int | None, single: int | None) -> bool:
    """Return whether two percentiles differ by at most 1 %."""
    if fleet is None or single is None:
        return fleet is single
    return abs(fleet - single) <= 0.01 * single


def test_hist_is_that_of_the_recording(one: Fleet, recording: fusetools.Recording) -> None:
    found = {h.operation: h for h in one.hist(()).histograms}
    single = {h.operation: h for h in recording.hist(layers=("request",)).histograms if h.count}
    assert list(found) and found.keys() == single.keys()
    for name, h in found.items():
        same = ("count", "min_ns", "max_ns", "mean_ns", "total_ns", "unanswered", "buckets")
        for field in same:
            assert getattr(h, field) == getattr(single[name], field), (name, field)
        for p, ns in single[name].percentiles_ns.items():
            assert near(h.percentiles_ns[p], ns), (name, p)
    assert {h.operation for h in one.hist(("read*",)).histograms} == {"read", "readdir"}


def test_counts_and_errors_are_those_of_the_recording(
    one: Fleet, recording: fusetools.Recording
) -> None:
    counts = recording.counts(layers=("request",)).counts
    assert {c.function: c.count for c in one.count(()).counts} == {
        c.function: c.count for c in counts if c.count
    }
    assert one.errors(()).operations == recording.errors().operations


def test_stages_are_those_of_the_recording(one: Fleet, recording: fusetools.Recording) -> None:
    single = recording.stages()
    found = one.stages(())
    assert len(found.operations) == len(single.operations) > 5
    for a, b in zip(found.operations, single.operations):
        for field in ("operation", "waits", "requests", "matched", "errors", "total_ns", "timed"):
            assert getattr(a, field) == getattr(b, field), (a.operation, field)
        assert near(a.p50_ns, b.p50_ns) and near(a.p99_ns, b.p99_ns)
        assert {s.name: s.total_ns for s in a.stages} == {s.name: s.total_ns for s in b.stages}
        plain = {s.name: s for s in b.stages}
        for s in a.stages:
            if s.name in plain and plain[s.name].total_ns == s.total_ns:
                assert near(s.p50_ns, plain[s.name].p50_ns), s.name
                assert near(s.p99_ns, plain[s.name].p99_ns), s.name
                assert s.parts_ns == plain[s.name].parts_ns, s.name
        assert any(s.parts_ns for s in a.stages)


def test_groups_are_those_of_the_recording(one: Fleet, recording: fusetools.Recording) -> None:
    (a,) = one.groups("comm", ()).groups
    (b,) = recording.groups("comm").groups
    assert a.label == b.label
    for field in ("requests", "begun", "answered", "errors", "negative", "unanswered"):
        assert getattr(a, field) == getattr(b, field), field
    for x, y in ((a.latency, b.latency), (a.whole, b.whole)):
        assert (x.count, x.total_ns, x.max_ns) == (y.count, y.total_ns, y.max_ns)
        assert near(x.p50_ns, y.p50_ns) and near(x.p90_ns, y.p90_ns) and near(x.p99_ns, y.p99_ns)
    assert {g.label for g in one.groups("rack", ()).groups} == {"r07"}


def test_the_slowest_are_those_of_the_recording(one: Fleet, recording: fusetools.Recording) -> None:
    found, single = one.slow((), 10).requests, recording.slowest(most=10).requests
    same = ("unique", "operation", "duration_ns", "path", "error", "tid", "start_ns", "mount")
    for a, b in zip(found, single):
        assert [getattr(a, name) for name in same] == [getattr(b, name) for name in same]
        assert a.host == "demo"


def test_why_adds_up_what_the_exports_found(one: Fleet, recording: fusetools.Recording) -> None:
    single = recording.why()
    assert [(c.code, c.time_ns) for c in one.why().causes] == [
        (f.reason.code.value, f.time_ns) for f in single.findings
    ]
    assert one.why().waited_ns == single.waited_ns


def test_without_findings_nobody_knows_why(site: Fleet, one: Fleet, run: Invoke) -> None:
    assert site.why().unasked == HOSTS and not site.why().causes
    text = run("fleet", str(site.folder), "why").output
    assert "cannot be told" in text and "callers waited" in text.splitlines()[0]
    assert "nothing stands out" not in text and "0 ns" not in text
    assert f"in {one.why().recordings} recording\n" in run("fleet", str(one.folder), "why").output


@pytest.mark.parametrize("by", ["host", "rack", "hour", "user"])
def test_groups_add_up_to_the_whole(site: Fleet, by: str) -> None:
    whole = sum(h.count for h in site.hist(()).histograms)
    assert whole == HOSTS * REQUESTS == site.facts().requests.begun
    groups = site.groups(by, (), most=7).groups
    assert len(groups) == 8 and groups[-1].others > 10
    assert sum(g.requests for g in groups) == sum(g.latency.count for g in groups) == whole
    total = sum(h.total_ns or 0 for h in site.hist(()).histograms)
    assert sum(g.latency.total_ns for g in groups) == total


def test_outliers_are_those_that_were_made(site: Fleet) -> None:
    found = {(o.by, o.measure): o for o in reversed(site.outliers().outliers)}
    assert found["rack", "p50_ns"].label == fleet_of.SLOW_RACK
    assert 4 < found["rack", "p50_ns"].times < 6  # made 5 times as slow
    assert found["version", "failed_share"].label == fleet_of.BAD_VERSION
    assert found["user", "requests"].label == fleet_of.HAMMERER
    racks = [o for o in site.outliers(("rack",)).outliers if o.measure == "p50_ns"]
    assert [o.label for o in racks] == [fleet_of.SLOW_RACK]
    hosts = {o.label for o in site.outliers(("host",)).outliers if o.measure == "p50_ns"}
    assert hosts == {"node0014", "node0015"}  # of that rack


def test_the_page_shows_each_host_in_time(site: Fleet, folder: Path) -> None:
    """Against NumPy, from the same files."""
    found = site.overview(12)
    assert (found.step_ns, len(found.hosts), found.others) == (3600 * 10**9, 12, HOSTS - 12)
    assert [host.outlier for host in found.hosts[:1]] == [True]
    paths = [path for path in folder.rglob("*.parquet") if "requests" in path.parts]
    names = ["host", "time_ns", "duration_ns"]
    rows = pa.concat_tables(pq.ParquetFile(path).read(names) for path in paths)
    hosts, time, took = (rows[name].to_numpy() for name in names)
    steps = (time - found.first_ns) // found.step_ns
    for host in found.hosts:
        own = hosts == host.label
        assert host.histogram is not None and host.histogram.count == own.sum()
        for at, times in enumerate(host.steps):
            ns = np.sort(took[own & (steps == at)])
            if times is None:
                assert not len(ns)
                continue
            assert (times.count, times.max_ns, times.total_ns) == (len(ns), ns[-1], ns.sum())
            rank = ns[-(-len(ns) * 9 // 10) - 1]
            assert times.p90_ns is not None and rank <= times.p90_ns <= rank * 1.01
    assert sum(times.count for host in found.hosts for times in host.steps if times) == (
        12 * REQUESTS
    )


def test_the_page(folder: Path, run: Invoke, tmp_path: Path) -> None:
    done = run("fleet", str(folder), "report", "-n", "3", "-o", str(tmp_path / "page.html"))
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert page.count('class="name"') == 3 and f"{HOSTS - 3} hosts left out" in page
    assert page.index("Outliers") < page.index("Hosts over time") < page.index("Latency of each")
    for words in (("report", "--json"), ("report", "lookup"), ("hist", "-o", "x.html")):
        assert run("fleet", str(folder), *words).exit_code == 2, words


def test_few_groups_have_no_outliers(one: Fleet) -> None:
    result = one.outliers()
    assert result.outliers == () and not any(c.enough for c in result.compared)
    assert text.outliers(result).startswith("whether there are outliers cannot be told\n")


def test_diff_compares_dates(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "two")
    fleet_of.make(tmp_path / "two", 4, 300, "2026-11-26")
    result = Fleet(str(tmp_path / "two")).diff()
    assert (result.a.name, result.b.name) == ("2026-11-25", "2026-11-26")
    assert sum(d.a.count or 0 for d in result.differences) == HOSTS * REQUESTS
    assert sum(d.b.count or 0 for d in result.differences) == 4 * 300


def test_one_date_has_nothing_to_compare(site: Fleet) -> None:
    with pytest.raises(Error, match="cannot compare two dates"):
        site.diff()


def test_files_that_cannot_be_read_are_named_and_counted(
    folder: Path, tmp_path: Path, run: Invoke
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    files = sorted((bad / "requests").rglob("*.parquet"))
    cut, foreign, alone, torn = files[:4]
    cut.write_bytes(cut.read_bytes()[:-20])
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"operation": ["lookup"]}), foreign)
    (bad / "sessions" / alone.relative_to(bad / "requests")).unlink()
    # Its end is whole, its data is not.
    data = bytearray(torn.read_bytes())
    data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
    torn.write_bytes(data)
    found = Place(str(bad)).find()
    assert {(r.code, r.subject["path"], r.figures["files"]) for r in found.skipped} == {
        (Code.FLEET_BROKEN, str(cut), 1),
        (Code.FLEET_FOREIGN, str(foreign), 1),
        (Code.FLEET_INCOMPLETE, str(alone), 1),
    }
    result = run("fleet", str(bad), "hist")
    assert result.exit_code == 0
    assert f"{(HOSTS - 4) * REQUESTS:,} requests" in result.output
    assert f"{cut} and 1 other" in " ".join(result.output.split())


def test_an_object_store_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Invoke
) -> None:
    fleet_of.make(tmp_path / "site", 6, 200)
    site = Fleet(str(tmp_path / "site"))
    with s3.served(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        there = Fleet("s3://bucket/site")
        assert there.facts() == site.facts()
        assert there.hist(()) == site.hist(())
        assert there.groups("rack", ()) == site.groups("rack", ())
        assert there.slow((), 5) == site.slow((), 5)
        empty = run("fleet", "s3://bucket/empty", "hist")
        assert empty.exit_code == 1 and "fusetools export --format parquet" in empty.output


def test_a_folder_without_tables(run: Invoke, tmp_path: Path) -> None:
    result = run("fleet", str(tmp_path), "hist")
    assert result.exit_code == 1 and "fusetools export --format parquet" in result.output
    result = run("fleet", "nothing://bucket/site", "hist")
    assert result.exit_code == 1 and "s3://BUCKET/DIR" in result.output
    for wrong in (("hist", "--engine", "mysql"), (), ("why", "lookup"), ("diff", "2026-11-25")):
        assert run("fleet", str(tmp_path), *wrong).exit_code == 2


def test_an_unknown_grouping(site: Fleet) -> None:
    with pytest.raises(Error, match="cannot group requests by colour"):
        site.groups("colour", ())


def test_sql(folder: Path, run: Invoke) -> None:
    query = "select count(*) n, count(distinct host) hosts from requests"
    result = run("fleet", str(folder), "--sql", query, "--json")
    assert result.output.strip() == f'[{{"n": {HOSTS * REQUESTS}, "hosts": {HOSTS}}}]'
    wrong = run("fleet", str(folder), "--sql", "select nothing from nowhere")
    assert wrong.exit_code == 1 and "the query failed" in wrong.output


@pytest.mark.parametrize("words", [("stages",), ("outliers",), ("errors", "--by", "version")])
def test_the_command(folder: Path, run: Invoke, words: tuple[str, ...]) -> None:
    result = run("fleet", str(folder), *words)
    assert result.exit_code == 0 and "24,000 requests, 24,000 matched" in result.output
    # Commands that it names are those about the fleet.
    named = re.findall(r"fusetools \w+", result.output)
    assert set(named) <= {"fusetools fleet"}


@pytest.mark.parametrize("words", ["outliers", "why", "hist", "slow", "stages"])
def test_json_follows_its_schema(folder: Path, run: Invoke, words: str) -> None:
    name = {"outliers": "fleet", "why": "fleet-why"}.get(words, words)
    printed = json.loads(run("fleet", str(folder), words, "--json").output)
    assert printed["command"] == name
    jsonschema.validate(printed, schema(name))


def test_percentiles_are_the_nearest_ranks() -> None:
    values = [3, 200, 1000, 1000, 50_000]
    cells = Counter(map(bucket, values))
    for per_mille in (1, 200, 201, 500, 800, 801, 1000):
        rank = -(-len(values) * per_mille // 1000)
        assert percentile(cells, per_mille, 2**63) == last(bucket(values[rank - 1]))
    assert percentile({}, 500, 1) is None


def test_without_ibis(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(Error) as raised:
        Fleet(str(folder))
    assert raised.value.fix == extras.FLEET


@pytest.mark.timeout(900)
def test_spark_says_the_same(tmp_path: Path) -> None:
    """One session for all questions: its start takes longer than they do."""
    pytest.importorskip("pyspark", reason="no pyspark: make test-spark runs it")
    if not shutil.which("java"):
        pytest.skip("no Java: apt-get install default-jre-headless")
    fleet_of.make(tmp_path, 3, 200)
    spark, duckdb = Fleet(str(tmp_path), "local[1]"), Fleet(str(tmp_path))
    try:
        assert spark.hist(()) == duckdb.hist(())
        assert spark.errors(()) == duckdb.errors(())
        assert spark.stages(()) == duckdb.stages(())
        assert spark.groups("rack", ()) == duckdb.groups("rack", ())
    finally:
        spark._connection._session.stop()


def test_stages_that_cannot_be_separated_are_named_together(one: Fleet) -> None:
    """The recording of each request is unlike, as of hosts that record in different detail."""
    import ibis

    marks = [name for name in one.requests.columns if name.endswith("_ns")]
    spans: list[tuple[str, dict[str, int]]] = [
        ("begin callback_enter end", {"queue+dispatch": 10, "daemon+reply": 20}),
        ("begin end", {"queue+dispatch+daemon+reply": 9}),
        ("begin read reply end", {"queue": 5, "daemon": 6, "reply": 7}),
        ("begin read end", {"queue": 5, "daemon+reply": 13}),
        ("sys_enter begin read reply end", {"vfs_entry+setup": 3, "queue": 5, "daemon": 6}),
        ("resumed begin read reply end", {"between+setup": 3, "queue": 5, "daemon": 6}),
        ("sys_enter begin read end", {"queue": 5}),  # nobody waits for it
        ("begin end sys_exit", {"caller_wakeup+vfs_exit": 8}),
    ]
    rows = []
    for known, stages in spans:
        row: dict[str, int | None] = dict.fromkeys(marks)
        row.update({f"{name}_ns": 1 for name in known.split()})
        row.update({f"stage_{name.split('+')[-1]}_ns": ns for name, ns in stages.items()})
        rows.append(row)
    schema = dict.fromkeys(rows[0], "int64")
    table, columns = fleet._separated(ibis.memtable(rows, schema=schema))
    found = table.to_pyarrow().to_pylist()
    names = fleet._stages(rows[0])
    for (_, stages), row, separated in zip(spans, rows, found):
        shown = {n: separated[c] for n, c in columns.items() if separated[c] is not None}
        assert shown == stages
        spanned = {fleet._span(row, names, n): row[f"stage_{n}_ns"] for n in names}
        assert {name: ns for name, ns in spanned.items() if ns} == stages


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Error, match="cannot read") as caught:
        Fleet(str(tmp_path / "none"))
    assert caught.value.why == "there is no such directory"
    with pytest.raises(Error, match="holds no tables"):
        Fleet(str(tmp_path))
