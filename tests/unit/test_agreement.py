"""Two commands never disagree about one recording."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import data
import pytest
from fixtures import Invoke

import fusetools
from fusetools.render.text.words import IN_REQUEST
from fusetools.results.flame import Stacks
from fusetools.results.stages import OperationStages

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
    """Return the requests of `fusetools export`."""
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
    # Only the answer is known of a request that began before the recording.
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
        assert (h.max_ns, h.total_ns, h.count) == (max(exported), sum(exported), len(exported))
        within = [
            sum(ns for name, ns in r.stages if name.split("+")[0] in IN_REQUEST)
            for r in slowest
            if r.operation == operation
        ]
        if all(not name.startswith("setup+") for r in slowest for name, _ in r.stages):
            assert sorted(within) == sorted(exported)
    # The callers' wait is the same in stages and slow, and the slowest request comes first.
    for o in recording.stages().operations:
        if o.timed:
            own = [
                r.duration_ns for r in slowest if (r.operation, r.waits) == (o.operation, o.waits)
            ]
            assert (len(own), sum(own), max(own)) == (o.timed, o.total_ns, o.max_ns)
            assert o.total_ns == sum(stage.total_ns for stage in o.stages)
            for stage in o.stages:
                assert stage.p50_ns <= stage.p99_ns <= stage.max_ns
                assert stage.mean_ns * o.timed == pytest.approx(stage.total_ns)
    assert slowest[0].duration_ns == max(o.max_ns or 0 for o in recording.stages().operations)


def test_callbacks_count_until_their_reply(path: Path, run: Invoke) -> None:
    """The figures agree in hist's table, count --csv and diff; none contains a callback's rest."""
    recording = fusetools.open(path)
    hist = {
        h.function: (h.until_reply or h).percentiles_ns
        for h in recording.hist(layers=("daemon",)).histograms
        if h.count
    }
    counts = recording.counts(layers=("daemon",)).counts
    assert hist and hist == {
        c.function: c.latency.percentiles_ns for c in counts if c.latency and c.count
    }
    differences = json.loads(run("diff", str(path), str(path), "--json").stdout)["differences"]
    daemon = [d for d in differences if d["layer"] == "daemon"]
    assert hist == {d["function"]: d["a"]["percentiles_ns"] for d in daemon}
    unmatched = {c.function: c.latency.unmatched for c in counts if c.latency}
    whole = recording.hist(layers=("daemon",)).histograms
    assert unmatched == {h.function: h.unmatched for h in whole}


def facts(recording: fusetools.Recording) -> Iterator[tuple[str, object]]:
    for answer in (
        recording.hist(),
        recording.counts(),
        recording.stages(),
        recording.slowest(),
        recording.errors(),
        recording.queue(),
    ):
        yield type(answer).__name__, answer.facts


def test_totals_agree_between_commands(path: Path, rows: list[dict[str, object]]) -> None:
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
            assert (h.until_reply.total_ns or 0) + (h.after_reply.total_ns or 0) == h.total_ns
            # The caller waits until the reply: up to then no callback is longer than its request.
            request = requests[h.operation]
            if request.count == h.count:
                assert (h.until_reply.max_ns or 0) <= (request.max_ns or 0)
                assert (h.until_reply.total_ns or 0) <= (request.total_ns or 0)
    assert parts or not any(h.layer == "daemon" and h.count for h in found)


def test_an_operation_is_not_a_system_call(path: Path, rows: list[dict[str, object]]) -> None:
    operations = {str(row["operation"]) for row in rows}
    for operation in operations & {"read", "getxattr", "readlink"}:
        found = fusetools.open(path).hist(operation).histograms
        assert {h.operation for h in found if h.layer == "syscall"} <= {operation}


# Names of a request's inside, as in flame --requests.
FRAMES = {
    "queue": "[queue]",
    "queue+dispatch": "[queue]",
    "dispatch": "[dispatch]",
    "reply": "[reply]",
    "caller_wakeup": "[wakeup]",
}
UNKNOWN = ("[queue or daemon]", "[daemon, thread unknown]")


def flames(recording: fusetools.Recording, graph: str, *operations: str, **more: Any) -> Stacks:
    try:
        return recording.stacks(graph, *operations, **more)
    except fusetools.Error as error:
        pytest.skip(f"no {graph}: {error}")


def of_operation(recording: fusetools.Recording) -> dict[str, list[OperationStages]]:
    found: dict[str, list[OperationStages]] = {}
    for o in recording.stages().operations:
        if o.timed:
            found.setdefault(o.operation, []).append(o)
    return found


def inside(operations: list[OperationStages], waits: bool) -> Counter[str]:
    """Return ns by stage, from each request's begin until its caller ran again."""
    found: Counter[str] = Counter()
    for o in operations:
        for stage in o.stages if o.waits == waits else ():
            if set(stage.name.split("+")) <= {*IN_REQUEST, "caller_wakeup"}:
                found[stage.name] += stage.total_ns
    return found


def test_flame_requests_is_as_wide_as_stages(path: Path) -> None:
    recording = fusetools.open(path)
    checked = 0
    for operation, stages in of_operation(recording).items():
        shown = flames(recording, "requests", operation)
        within = inside(stages, waits=True)
        of_requests = (shown.total_ns or 0) - (shown.outside.total_ns or 0)
        assert of_requests == sum(within.values()) - shown.shared_ns, operation
        # Return ns by stage: the frames directly above a request's name.
        found: Counter[str] = Counter()
        for stack, us in shown.stacks.items():
            frames = stack.split(";")
            if "[outside of requests]" in frames:
                continue
            own = next(i for i, frame in enumerate(frames) if frame.startswith("[FUSE "))
            fate = frames[own + 1].strip("[]") in UNANSWERED
            found[frames[own + 1 + fate]] += round(us * 1000)
        if not shown.shared_ns:
            expected: Counter[str] = Counter()
            for name, ns in within.items():
                expected[FRAMES.get(name, "daemon")] += ns
            of_daemon = sum(n for frame, n in found.items() if frame not in FRAMES.values())
            assert of_daemon == expected.pop("daemon", 0), (operation, found)
            assert {f: n for f, n in found.items() if f in FRAMES.values()} == +expected
            checked += 1
        assert round(sum(shown.stacks.values()) * 1000) == shown.total_ns
    assert checked


def parts(operations: list[OperationStages], stage: str, waits: tuple[bool, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for o in operations:
        for s in o.stages if o.waits in waits else ():
            if s.name == stage:
                found.update(s.parts_ns)
                found["unsplit"] += s.unsplit_ns  # of the blocked time
    return found


def test_flame_says_blocked_where_stages_does(path: Path) -> None:
    """The daemon's waits have the same ns in the graphs and in the parts of its stages."""
    recording = fusetools.open(path)
    checked = 0
    for operation, stages in of_operation(recording).items():
        shown = flames(recording, "requests", operation)
        told = parts(stages, "daemon", (True,))
        if not shown.shared_ns and "blocked" in told and not told["unknown"]:
            assert not set(UNKNOWN) & {f for stack in shown.stacks for f in stack.split(";")}
            assert blocked(shown) == told["blocked"], operation
            assert runnable(shown) == told["runnable"], operation
            assert shown.states_ns["blocked_or_runnable"] == told["unsplit"], operation
            checked += 1
        daemon = flames(recording, "off-cpu", operation, layers=["daemon"])
        told = parts(stages, "daemon", (True, False))
        # Requests that began before the recording are not in stages; their callbacks' waits are.
        if "blocked" in told and not told["unknown"] and not any(o.unmatched for o in stages):
            told.update(parts(stages, "dispatch", (True, False)))
            assert blocked(daemon) == told["blocked"], operation
            assert runnable(daemon) == told["runnable"], operation
            assert daemon.states_ns["blocked_or_runnable"] == told["unsplit"], operation
            assert daemon.total_ns == daemon.daemons_ns == told["blocked"] + told["runnable"]
            checked += 1
    assert checked


def blocked(shown: Stacks) -> int:
    return shown.states_ns["blocked"] + shown.states_ns["blocked_or_runnable"]


def runnable(shown: Stacks) -> int:
    return shown.states_ns["runnable"] + shown.states_ns["preempted"]


def test_flame_offcpu_is_made_of_callers_and_daemons(path: Path) -> None:
    recording = fusetools.open(path)
    checked = 0
    for operation, stages in of_operation(recording).items():
        whole = flames(recording, "off-cpu", operation)
        sides = [
            flames(recording, "off-cpu", operation, layers=[side]) for side in ("syscall", "daemon")
        ]
        assert sum(side.total_ns or 0 for side in sides) == whole.total_ns
        assert [sides[0].daemons_ns, sides[1].daemons_ns] == [0, whole.daemons_ns]
        # Callers are off the CPU while they wait, and not longer.¶(For a request that no caller
        # waits for, such as a page of a file, stages lacks the caller's wake-up.)
        if all(o.waits for o in stages):
            assert (sides[0].total_ns or 0) <= sum(inside(stages, waits=True).values())
            checked += 1
        woken = flames(recording, "off-wake", operation)
        assert woken.total_ns == blocked(whole)
        assert woken.states_ns == whole.states_ns
    assert checked
    everything = flames(recording, "off-cpu")
    for operation in of_operation(recording):
        part = flames(recording, "off-cpu", operation)
        assert (everything.total_ns or 0) >= (part.total_ns or 0)


# ns of an event and of a callback's two probes: none, as measured once, more than any stage.
COSTS = [(0, 0), (251, 1602), (10**15, 10**15)]


def measured(path: Path, event: int | None, pair: int | None) -> fusetools.Recording:
    """Return the recording as if these costs had been measured in it."""
    recording = fusetools.open(path)
    session = replace(recording.session, event_cost_ns=event, pair_cost_ns=pair)
    recording._source.session = session
    return recording


@pytest.mark.parametrize(("event", "pair"), COSTS)
def test_corrected_requests(path: Path, event: int, pair: int) -> None:
    recording = measured(path, event, pair)
    stages = recording.stages(corrected=True)
    within: Counter[str] = Counter()
    for o in stages.operations:
        assert o.total_ns == sum(stage.total_ns for stage in o.stages)
        for stage in o.stages:
            if set(stage.name.split("+")) <= set(IN_REQUEST):
                within[o.operation] += stage.total_ns
    for layers in ((), ("request",)):
        found = recording.hist(layers=layers, corrected=True)
        assert found.facts.requests == stages.facts.requests
        requests = {h.operation: h for h in found.histograms if h.layer == "request"}
        assert {name: h.total_ns for name, h in requests.items() if h.count} == within


@pytest.mark.parametrize(("event", "pair"), COSTS)
def test_corrected_is_as_recorded_less_what_recording_took(
    path: Path, event: int, pair: int
) -> None:
    recording = measured(path, event, pair)
    taken: Counter[str] = Counter()
    plain, less = recording.stages().operations, recording.stages(corrected=True).operations
    rest = {(o.operation, o.waits): o for o in less}
    assert len(rest) == len(plain)
    for o in plain:
        corrected = rest[o.operation, o.waits]
        assert [s.name for s in corrected.stages] == [s.name for s in o.stages]
        for was, now in zip(o.stages, corrected.stages):
            # --overhead shows what --corrected subtracts.
            assert was.probes_ns == now.probes_ns == was.total_ns - now.total_ns
            assert sum(now.parts_ns.values()) in (0, now.total_ns)
            if set(was.name.split("+")) <= set(IN_REQUEST):
                taken[o.operation] += was.total_ns - now.total_ns
    assert bool(+taken) == bool(event)
    as_recorded = {(h.layer, h.function, h.operation): h for h in recording.hist().histograms}
    found = recording.hist(corrected=True).histograms
    assert {(h.layer, h.function, h.operation) for h in found} == as_recorded.keys()
    checked = set()
    for h in found:
        was_h = as_recorded[h.layer, h.function, h.operation]
        assert (h.count, h.unmatched, h.unanswered) == (
            was_h.count,
            was_h.unmatched,
            was_h.unanswered,
        )
        if h.layer == "kernel" or not event:
            assert h == was_h
            continue
        if not h.count:
            continue
        checked.add(h.layer)
        assert 0 <= (h.total_ns or 0) < (was_h.total_ns or 0), (h.layer, h.function, h.operation)
        for part in ("min_ns", "max_ns", "mean_ns"):
            assert getattr(h, part) <= getattr(was_h, part)
        if h.layer == "request":
            assert (was_h.total_ns or 0) - (h.total_ns or 0) == taken[h.operation]
    assert "request" in checked or not event


def test_corrected_callbacks(path: Path) -> None:
    """If a callback's time until its reply is the daemon's stage, the same holds after
    correction."""
    recording = measured(path, 251, 1602)
    same = []
    for corrected in (False, True):
        daemon: Counter[str] = Counter()
        for o in recording.stages(corrected=corrected).operations:
            daemon[o.operation] += sum(s.total_ns for s in o.stages if s.name == "daemon")
        found = {h.function: h for h in recording.hist(corrected=corrected).histograms}
        until = {
            name: h
            for name, h in found.items()
            if h.layer == "daemon" and h.until_reply and h.after_reply
        }
        for h in until.values():
            assert h.until_reply and h.after_reply
            assert (h.until_reply.total_ns or 0) + (h.after_reply.total_ns or 0) == h.total_ns
        same.append(
            {
                name
                for name, h in until.items()
                if h.until_reply and h.until_reply.total_ns == daemon[h.operation]
            }
        )
    assert same[0] <= same[1]
    assert same[0] or path.name != "demo.data"


@pytest.mark.parametrize("answer", ["hist", "stages"])
def test_corrected_where_nothing_was_measured(path: Path, answer: str) -> None:
    with pytest.raises(fusetools.Error) as raised:
        getattr(measured(path, None, None), answer)(corrected=True)
    assert raised.value.what == f"cannot correct the durations of {path}"
    assert "was not measured" in raised.value.why
    assert raised.value.fix.startswith("fusetools record ")


def test_corrected_where_a_part_was_measured(path: Path) -> None:
    recording = measured(path, None, 1602)
    for facts in (recording.hist(corrected=True).facts, recording.stages(corrected=True).facts):
        assert facts.corrected and facts.corrected.event_ns is None
        assert "events" in facts.corrected.remaining
    assert recording.hist().facts.corrected is None
