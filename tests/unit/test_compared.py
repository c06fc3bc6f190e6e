"""fusetools compare: its figures equal hist's, and its test detects real differences."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import data
import golden
import numpy as np
import numpy.typing as npt
import pytest
from fixtures import Invoke
from test_sweep import made

import fusetools
from fusetools.experiments import compare as comparing
from fusetools.experiments import sweep
from fusetools.experiments.compare import compare, durations, larger, probability
from fusetools.experiments.folder import Folder
from fusetools.figures import duration, number
from fusetools.render.text import compare as text
from fusetools.results import compare as compared
from fusetools.results.hist import Bucket

stats = pytest.importorskip("scipy.stats")

DEMO = Path(__file__).parents[2] / "samples" / "recordings" / "demo.data"
KERNELS = ("6.1.0-56-amd64", "7.2.13+deb14-amd64")


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The same workload on two kernels."""
    monkeypatch.chdir(tmp_path)
    return [
        data.unpack(f"kernels/{kernel}/recording/perf.data.zst", Path(f"linux-{kernel[:3]}.data"))
        for kernel in KERNELS
    ]


@pytest.mark.parametrize("layer", ["request", "daemon"])
def test_the_figures_are_hists(layer: str, recordings: list[Path]) -> None:
    """Another pass finds its pairs in another way."""
    result = compare(recordings, layer)
    for i, path in enumerate(recordings):
        histograms = fusetools.open(path).hist(layers=(layer,)).histograms
        theirs = {h.operation: h for h in histograms if h.count}
        (group,) = result.groups
        ours = {m.name: m.sides[i] for m in group.measures if m.sides[i].count}
        assert ours.pop("time").p50_ns == pytest.approx(
            1e9 * fusetools.open(path).hist().facts.seconds
        )
        assert ours.keys() == theirs.keys()
        for name, h in theirs.items():
            side = ours[name]
            assert side.count == h.count
            assert side.p50_ns == pytest.approx(h.percentiles_ns["50"], rel=1 / 2048)
            assert side.p99_ns == pytest.approx(h.percentiles_ns["99"], rel=1 / 2048)
            assert side.total_ns == h.total_ns
            assert [row for row in h.buckets if row[2]] == list(side.buckets)


def test_a_large_recordings_figures_are_hists(tmp_path: Path) -> None:
    path = data.unpack("cernvmfs-6.1/perf.data.zst", tmp_path / "perf.data")
    found = durations(fusetools.open(path), "request")
    for h in fusetools.open(path).hist(layers=("request",)).histograms:
        assert len(found[h.operation]) == h.count
        assert found[h.operation].sum() == h.total_ns


def noisy(draw: np.random.Generator, n: int, drift: float = 0.0) -> npt.NDArray[np.float64]:
    """Return latencies that resemble their predecessors: slow phases last for a while."""
    noise = draw.normal(size=n)
    slow = np.zeros(n)
    for i in range(1, n):
        slow[i] = 0.9 * slow[i - 1] + 0.3 * noise[i]
    latencies: npt.NDArray[np.float64] = np.exp(np.log(50_000) + drift + slow)
    return latencies


def test_compare_rarely_reports_noise() -> None:
    draw = np.random.default_rng(1)
    pairs = [(noisy(draw, 1000), noisy(draw, 1000)) for _ in range(200)]
    wrong = sum((probability(a, b) or 0) <= 0.05 for a, b in pairs) / len(pairs)
    single = [float(stats.mannwhitneyu(a, b).pvalue) for a, b in pairs]
    assert wrong <= 0.12
    # Single calls do not count as independent ones.
    assert sum(p <= 0.05 for p in single) / len(pairs) > 0.4


def test_compare_detects_differences() -> None:
    draw = np.random.default_rng(2)
    found = [probability(noisy(draw, 2000, 0.5), noisy(draw, 2000)) for _ in range(50)]
    assert sum(p is not None and p <= 0.05 for p in found) >= 45


def test_a_slower_part_of_the_calls_is_remarked() -> None:
    """The median of all hardly changes if a tenth takes 20 times as long."""
    random = np.random.default_rng(5)

    def remarks(share: float) -> list[str]:
        one, other = (random.lognormal(10, 1, 2000) for _ in range(2))
        other[random.random(2000) < share] *= 20
        sides = [comparing._of_calls(values.astype(np.int64)) for values in (one, other)]
        return comparing._skewed([comparing._measure("read", "request", sides)])

    assert sum(bool(remarks(0)) for _ in range(50)) <= 2
    (remark,) = remarks(0.1)
    assert re.fullmatch(
        "a part of read is slower in B: its mean is [23][.0-9]+ times that of A", remark
    )


def test_a_share_of_pairs_is_the_tests_own() -> None:
    draw = np.random.default_rng(3)
    a, b = draw.integers(0, 50, 300), draw.integers(10, 60, 200)
    assert larger(a, b) == pytest.approx(stats.mannwhitneyu(a, b).statistic / (300 * 200))
    assert larger([1], [2]) == 0 and larger([2], [2]) == 0.5 and larger([3, 3], [2]) == 1


@pytest.mark.parametrize(("n", "tells"), [(1, False), (3, False), (4, True), (7, True)])
def test_compare_tells_how_many_runs_are_needed(n: int, tells: bool) -> None:
    p = probability(list(range(10, 10 + n)), list(range(n)))
    assert (p is not None) == tells
    assert p is None or p <= 0.05


def test_equal_sides_are_no_difference() -> None:
    assert probability([5] * 10, [5] * 10) == 1
    assert probability([], [1, 2]) is None


# Sweeps


def slower(path: Path, repeat: int, factor: float) -> Folder:
    """Return a sweep like test_sweep's, ``factor`` times as long, with its reads."""
    folder = made(path, repeat)
    for (index, _), run in list(folder.runs.items()):
        reads = run.requests["read"]
        reads = replace(
            reads,
            p50=factor * (reads.p50 or 0),
            buckets=((65536, 131071, 100), (131072, 262143, 10)),
        )
        changed = replace(
            run, seconds=factor * run.seconds, requests={**run.requests, "read": reads}
        )
        place = os.open(folder.place(index, run.round), os.O_RDONLY)
        folder.keep(index, place, changed)
        os.close(place)
    sweep._save(folder)
    return folder


def test_two_sweeps(tmp_path: Path, run: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    slower(Path("before"), 6, 1.0)
    slower(Path("after"), 6, 1.25)
    result = compare([Path("before"), Path("after")])
    assert [group.label for group in result.groups] == ["bs=4k", "bs=64k", "bs=1M"]
    for group in result.groups:
        time, read, *_ = group.measures
        assert (time.name, read.name) == ("time", "read")
        for measure in (time, read):
            best, other = measure.sides
            assert best.times_best == 1 and best.differs is None
            assert other.times_best == pytest.approx(1.25)
            assert other.differs and other.slower == 1 and (other.p or 1) < 0.05
    said = run("compare", "before", "after")
    assert said.exit_code == 0
    golden.check("compare-sweeps.txt", said.stdout)
    assert all(len(line) <= 80 for line in said.stdout.splitlines())
    found = json.loads(run("compare", "before", "after", "--json").stdout)
    assert found["values"] == "run" and found["tests"] == result.tests == 12
    for group in found["groups"]:
        for measure in group["measures"]:
            for side in measure["sides"]:
                assert duration(side["p50_ns"]) in said.stdout or measure["name"] == "statfs"


def test_the_same_sweep_twice_is_no_difference(tmp_path: Path) -> None:
    for name in "ab":
        slower(tmp_path / name, 6, 1.0)
    result = compare([tmp_path / "a", tmp_path / "b"])
    assert not any(s.differs for g in result.groups for m in g.measures for s in m.sides)
    assert "within noise, p 1.000" in text.render(result)


def test_the_points_of_one_sweep(tmp_path: Path) -> None:
    result = compare([slower(tmp_path / "sweep", 6, 1.0).path])
    assert result.sides == ("bs=4k", "bs=64k", "bs=1M")
    (group,) = result.groups
    assert [round(side.times_best or 0, 2) for side in group.measures[0].sides] == [2, 1.5, 1]
    said = text.render(result, ["read"])
    assert "\ntime" not in said and "request read  calls" in said and "lookup" not in said


def test_points_that_not_all_have_are_said(tmp_path: Path) -> None:
    made(tmp_path / "a", 1)
    folder = made(tmp_path / "b", 1)
    for place in folder.place(2, 1).iterdir():
        place.unlink()
    result = compare([tmp_path / "a", tmp_path / "b"])
    assert [group.label for group in result.groups] == ["bs=4k", "bs=64k"]
    assert result.notes == ("only in some: bs=1M",)
    assert result.tests == 0
    assert "too few runs" in text.render(result)


# Printed output


def test_text_and_json_of_recordings(recordings: list[Path], run: Invoke) -> None:
    paths = list(map(str, recordings))
    said = run("compare", *paths, paths[0], "--operation", "*").stdout
    found = json.loads(run("compare", *paths, paths[0], "--json").stdout)
    assert found["sides"] == [*paths, paths[0]]
    (group,) = found["groups"]
    for measure in group["measures"]:
        for side in measure["sides"]:
            if side["p50_ns"] is None:
                assert side["times_best"] is None
                continue
            row = [number(side["count"]), duration(side["p50_ns"])]
            if measure["name"] == "time":  # one run
                assert re.search(" +".join(map(re.escape, row)), said)
                continue
            row += [duration(side["p99_ns"]), duration(side["total_ns"])]
            assert re.search(" +".join(map(re.escape, row)), said)
            assert sum(b["calls"] for b in side["buckets"]) == side["count"]
        best = [side["times_best"] for side in measure["sides"] if side["times_best"]]
        assert min(best) == 1
        # The third side is the first one again.
        one, _, again = measure["sides"]
        assert one["buckets"] == again["buckets"] and one["times_best"] == again["times_best"]


def test_operations_that_nobody_knows_or_called(run: Invoke) -> None:
    wrong = run("compare", str(DEMO), str(DEMO), "--operation", "nope")
    assert wrong.exit_code == 1 and "no FUSE operation matches nope" in wrong.stderr
    said = run("compare", str(DEMO), str(DEMO), "--operation", "write").stdout
    assert "no calls" in said.splitlines()
    said = run("compare", str(DEMO), str(DEMO), "--operation", "time").stdout
    assert "time" in said and "no calls" not in said


def test_a_verdict_has_its_own_line_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    best = compared.Figures(1832, 44.6e3, 25.1e6, total_ns=505e6, times_best=1.0)
    worse = replace(best, total_ns=713e6, times_best=6.72, slower=0.76, p=1e-4, differs=True)
    measure = compared.Measure("copy_file_range", "request", (best, worse))
    result = compared.Compared(("a", "b"), (compared.Group("", (measure,)),), "call", 1)
    printed = text.render(result).splitlines()
    assert "  slower in 76 % of pairs, p < 0.001" in printed
    assert max(map(len, printed)) <= 80


def test_compare_reports_more_frequent_calls() -> None:
    sides = [compared.Figures(n, 50.0, 60.0, total_ns=50.0 * n) for n in (4592, 300)]
    result = compared.Compared(
        ("a", "b"),
        (compared.Group("", (compared.Measure("lookup", "request", tuple(sides)),)),),
        "call",
        0,
    )
    said = text.render(result)
    assert "A made 15.3 times as many calls as B" in said
    assert "230 us" in said and "15.0 us" in said
    assert "noise" not in said


def test_a_names_letters_never_steer_the_terminal(tmp_path: Path) -> None:
    result = compared.Compared(("a\x1b[2J", "b"), (), "call", 0, ("x\x07",))
    assert "\x1b" not in text.render(result) and "\x07" not in text.render(result)


def test_a_histogram_has_every_bin_between() -> None:
    side = compared.Figures(3, 1.0, 2.0, (Bucket(0, 1, 1), Bucket(64, 127, 2)))
    other = compared.Figures(1, 1.0, 2.0, (Bucket(256, 511, 1),))
    rows = text._shapes(compared.Measure("read", "request", (side, other)), "call")
    starts = [" ".join(row.split()[:2]) for row in rows[1:]]
    assert starts == [duration(0), *(duration(2**i) for i in range(1, 9))]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["a.data"], "one recording alone cannot be compared"),
        (["a.data", "sweep"], "cannot compare a sweep with a recording"),
        (["a.data"] * 27, "27 are too many to compare"),
        (["no.data", "a.data"], "cannot read no.data"),
        (["empty"], "empty has no two points that were run"),
        (["sweep", "other"], "these sweeps have no point in common"),
    ],
)
def test_mistakes(
    arguments: list[str], what: str, run: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = made(Path("sweep"), 1)
    Path("a.data").touch()
    empty = Folder.create(Path("empty"), folder.experiment, 1)
    sweep._save(empty)
    one = replace(folder.experiment, params={"bs": ("2k", "3k")})
    sweep._save(Folder.create(Path("other"), one, 1))
    result = run("compare", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"fusetools: {what}")


@pytest.mark.parametrize("package", ["numpy", "scipy"])
def test_compare_names_the_command_that_installs_a_missing_package(
    tmp_path: Path, run: Invoke, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        slower(Path(name), 6, 1.0)
    monkeypatch.setitem(sys.modules, package, None)
    result = run("compare", "a", "b")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"fusetools: {package} is not installed\n")
    assert result.stderr.endswith("  fix: pip install 'fusetools-trace[compare]'\n")
