"""Two commands never disagree about one recording."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import data
import pytest

import fusetools
from fusetools.render.requests import IN_REQUEST

ROOT = Path(__file__).parents[2]
RECORDINGS = {
    "demo": None,
    "cernvmfs": "cernvmfs-6.1/perf.data.zst",
    **{
        kernel: f"kernels/{kernel}/recording/perf.data.zst"
        for kernel in (
            "5.10.0-46-amd64",
            "6.1.0-56-amd64",
            "6.12.117+deb13-amd64",
            "7.2.13+deb14-amd64",
        )
    },
}
UNANSWERED = ("unfinished", "interrupted", "aborted")


@pytest.fixture(scope="session", params=RECORDINGS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    stored = RECORDINGS[request.param]
    if stored is None:
        return ROOT / "samples/recordings/demo.data"
    return data.unpack(stored, tmp_path_factory.mktemp("agreement") / "perf.data")


@pytest.fixture(scope="session")
def rows(path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """The requests of `fusetools export`."""
    output = tmp_path_factory.mktemp("export") / "requests.json"
    fusetools.open(path).export(str(output), "json")
    found: list[dict[str, object]] = json.loads(output.read_text())["requests"]
    return [row for row in found if row["begin_ns"] is not None]


def test_counts(path: Path, rows: list[dict[str, object]]) -> None:
    recording = fusetools.open(path)
    exported = Counter(str(row["operation"]) for row in rows)
    hist = {h.operation: h for h in recording.hist(layers=("request",)).histograms}
    count = {c.operation: c.count for c in recording.counts(layers=("request",)).counts if c.count}
    stages: Counter[str] = Counter()
    errors = {
        o.operation: o.requests + sum(n for _, n in o.unanswered)
        for o in recording.errors().operations
    }
    for o in recording.stages().operations:
        without = sum(o.unmatched.get(fate, 0) for fate in ("no_reply", "before"))
        stages[o.operation] += o.requests - without
    assert count == exported
    assert {name: h.count + h.unmatched for name, h in hist.items() if h.count} == exported
    assert {name: n for name, n in stages.items() if n} == exported
    assert sum(m.requests for m in recording.queue().mounts) == sum(exported.values())
    assert len(recording.slowest(most=100_000).requests) == sum(h.count for h in hist.values())
    # Of one that began before the recording the answer alone is known.
    begun = {name: errors[name] for name in exported}
    assert begun.keys() == exported.keys() and all(begun[n] >= exported[n] for n in exported)


def test_durations(path: Path, rows: list[dict[str, object]]) -> None:
    recording = fusetools.open(path)
    slowest = recording.slowest(most=100_000).requests
    hist = {h.operation: h for h in recording.hist(layers=("request",)).histograms}
    for operation, h in hist.items():
        exported = [
            int(str(row["duration_ns"]))
            for row in rows
            if row["operation"] == operation and row["duration_ns"] is not None
        ]
        assert (h.max, h.total, h.count) == (max(exported), sum(exported), len(exported))
        within = [
            sum(ns for name, ns in r.stages if name.split("+")[0] in IN_REQUEST)
            for r in slowest
            if r.operation == operation
        ]
        if all(not name.startswith("setup+") for r in slowest for name, _ in r.stages):
            assert sorted(within) == sorted(exported)
    # What callers waited: the same in stages and slow, and the slowest is the first.
    for o in recording.stages().operations:
        if o.timed:
            own = [r.duration for r in slowest if (r.operation, r.waits) == (o.operation, o.waits)]
            assert (len(own), sum(own), max(own)) == (o.timed, o.total, o.max)
            assert o.total == sum(stage.total for stage in o.stages)
            for stage in o.stages:
                assert stage.p50 <= stage.p99 <= stage.max
                assert stage.mean * o.timed == pytest.approx(stage.total)
    assert slowest[0].duration == max(o.max or 0 for o in recording.stages().operations)


def facts(recording: fusetools.Recording) -> Iterator[tuple[str, object]]:
    for answer in (
        recording.hist(),
        recording.counts(),
        recording.stages(),
        recording.slowest(),
        recording.errors(),
        recording.queue(),
    ):
        yield type(answer).__name__, answer.facts  # type: ignore[attr-defined]


def test_what_is_said_of_the_whole(path: Path, rows: list[dict[str, object]]) -> None:
    recording = fusetools.open(path)
    said = dict(facts(recording))
    assert len(set(map(repr, said.values()))) == 1, said
    unanswered = sum(row["fate"] in UNANSWERED for row in rows)
    assert recording.hist().facts.requests.unanswered == unanswered
    assert recording.hist().unmatched == recording.counts().unmatched


def test_a_callback_and_its_request(path: Path, rows: list[dict[str, object]]) -> None:
    recording = fusetools.open(path)
    found = recording.hist().histograms
    requests = {h.operation: h for h in found if h.layer == "request"}
    parts = 0
    for h in found:
        if h.layer == "daemon" and h.until_reply and h.after_reply:
            parts += 1
            assert h.until_reply.count == h.count
            assert (h.until_reply.total or 0) + (h.after_reply.total or 0) == h.total
            # The caller waits until the reply: no callback is longer than its request by then.
            request = requests[h.operation]
            if request.count == h.count:
                assert (h.until_reply.max or 0) <= (request.max or 0)
                assert (h.until_reply.total or 0) <= (request.total or 0)
    assert parts or not any(h.layer == "daemon" and h.count for h in found)


def test_an_operation_is_not_a_system_call(path: Path, rows: list[dict[str, object]]) -> None:
    operations = {str(row["operation"]) for row in rows}
    for operation in operations & {"read", "getxattr", "readlink"}:
        found = fusetools.open(path).hist(operation).histograms
        assert {h.operation for h in found if h.layer == "syscall"} <= {operation}
