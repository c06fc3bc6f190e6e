"""The kernel layer of real recordings, compared with stock trace-cmd and perf."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import data
import pytest
from columns import Columns
from fixtures import Invoke

import fusetools
from fusetools import _core
from fusetools.results.count import Count
from fusetools.results.graph import GraphCall, GraphNode

CLIENT = "cernvmfs-6.1"
KERNELS = ("5.10.0-46-amd64", "6.1.0-56-amd64", "6.12.117+deb13-amd64", "7.2.13+deb14-amd64")
GRAPH: list[_core.Probe] = [
    _core.Probe("ftrace:funcgraph_entry", "kernel", "", "", "graph_entry"),
    _core.Probe("ftrace:funcgraph_exit", "kernel", "", "", "graph_exit"),
]


class Recorded(NamedTuple):
    name: str
    folder: Path
    merged: Path
    report: str  # of trace-cmd


@pytest.fixture(scope="session", params=[*KERNELS, CLIENT])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return make(request.param, tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return make(KERNELS[-1], tmp_path_factory.mktemp("newest"))


def make(name: str, folder: Path) -> Recorded:
    source = name if name == CLIENT else f"kernels/{name}/recording"
    for file in ("perf.data", "trace.dat"):
        data.unpack(f"{source}/{file}.zst", folder / file)
    _core.merge([folder / "perf.data", folder / "trace.dat"], folder / "merged.data", "")
    if name != CLIENT:
        report = data.unpack(f"{source}/trace-cmd-report.txt.zst", folder / "report.txt")
        return Recorded(name, folder, folder / "merged.data", report.read_text())
    if not shutil.which("trace-cmd"):
        pytest.skip("no trace-cmd")
    printed = subprocess.run(
        ["trace-cmd", "report", "-t", "-i", folder / "trace.dat"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Recorded(name, folder, folder / "merged.data", printed.stdout)


class Call(NamedTuple):
    """Return the path of functions from the outermost; None for calls that never ended."""

    tid: int
    path: tuple[str, ...]
    ns: int | None


LINE = re.compile(
    r".*-(\d+)\s+\[\d+\]\s+[\d.]+: funcgraph_(entry|exit):"
    r"\s+(?:[+!#*@$] )?(?:([\d.]+) us)?\s*\|\s*(.*)"
)


def by_trace_cmd(report: str) -> Iterator[Call]:
    """A leaf's line has its time; another's is on the line of its closing brace."""
    around: dict[int, list[str]] = defaultdict(list)
    for line in report.splitlines():
        match = LINE.fullmatch(line)
        if not match:
            assert "funcgraph" not in line, line
            continue
        tid, which, us, text = match.groups()
        ns = None if us is None else int(us.replace(".", ""))
        stack = around[int(tid)]
        if which == "exit":
            assert text == "}" and ns is not None
            yield Call(int(tid), tuple(stack), ns)
            stack.pop()
            continue
        function = text.partition("(")[0]
        if text.endswith("{"):
            stack.append(function)
        else:
            assert text.endswith("();") and ns is not None
            yield Call(int(tid), (*stack, function), ns)
    for tid, stack in around.items():
        for depth in range(len(stack)):
            yield Call(int(tid), tuple(stack[: depth + 1]), None)


def by_us(calls: Iterator[GraphCall]) -> Iterator[Call]:
    def below(call: GraphCall, path: tuple[str, ...]) -> Iterator[Call]:
        path = (*path, call.function)
        yield Call(call.tid, path, call.duration_ns)
        for child in call.children:
            yield from below(child, path)

    for call in calls:
        yield from below(call, ())


def test_each_call_is_trace_cmds(recorded: Recorded) -> None:
    theirs = Counter(by_trace_cmd(recorded.report))
    assert sum(theirs.values()) > 1000
    assert Counter(by_us(fusetools.open(recorded.merged).graph_calls().calls)) == theirs


def test_the_tree_is_trace_cmds_calls_added_up(recorded: Recorded) -> None:
    total: Counter[tuple[str, ...]] = Counter()
    calls: Counter[tuple[str, ...]] = Counter()
    inside: Counter[tuple[str, ...]] = Counter()
    unfinished = 0
    for call in by_trace_cmd(recorded.report):
        if call.ns is None:
            unfinished += 1
            continue
        calls[call.path] += 1
        total[call.path] += call.ns
        inside[call.path[:-1]] += call.ns
    # The time inside a call that never ended is part of no total.
    graph = fusetools.open(recorded.merged).graph()
    found: dict[tuple[str, ...], GraphNode] = {}

    def walk(node: GraphNode, path: tuple[str, ...]) -> None:
        path = (*path, node.function)
        found[path] = node
        for child in node.children:
            walk(child, path)

    for root in graph.roots:
        walk(root, ())
    assert {path: node.calls for path, node in found.items() if node.calls} == dict(calls)
    assert {path: node.total_ns for path, node in found.items() if node.calls} == dict(total)
    assert graph.unmatched == unfinished
    cut = {call.path for call in by_trace_cmd(recorded.report) if call.ns is None}
    for path, node in found.items():
        if path not in cut:
            assert node.self_time_ns == total[path] - inside[path]


def graphed(recorded: Recorded) -> list[Count]:
    counts = fusetools.open(recorded.merged).counts(layers=["kernel"]).counts
    # The client's recording has one probe whose name is not its function's.
    return [c for c in counts if c.function != "queue_request"]


def test_counts_and_times_per_function(recorded: Recorded) -> None:
    entries: Counter[str] = Counter()
    durations: dict[str, list[int]] = defaultdict(list)
    for call in by_trace_cmd(recorded.report):
        entries[call.path[-1]] += 1
        if call.ns is not None:
            durations[call.path[-1]].append(call.ns)
    counts = graphed(recorded)
    assert {c.function: c.count for c in counts} == dict(entries)
    for c in counts:
        h, expected = c.latency, sorted(durations[c.function])
        assert h is not None
        assert (h.count, h.unmatched) == (len(expected), entries[c.function] - len(expected))
        assert h.total_ns == sum(expected)
        if expected:
            assert (h.min_ns, h.max_ns) == (expected[0], expected[-1])


def test_addresses_are_the_kernels(recorded: Recorded, tmp_path: Path) -> None:
    """As in the kallsyms of the machine."""
    source = (
        f"{CLIENT}/kallsyms.zst"
        if recorded.name == CLIENT
        else f"kernels/{recorded.name}/recording/kallsyms-reduced.zst"
    )
    symbols = {}
    for line in data.unpack(source, tmp_path / "kallsyms").read_text().splitlines():
        address, _, name = line.split()[:3]
        symbols[int(address, 16)] = name
    counts = graphed(recorded)
    assert len(counts) > 50
    assert all(c.address is not None and symbols[c.address] == c.function for c in counts)


def calls_of(path: Path, catalogue: list[_core.Probe]) -> dict[tuple[str, int], list[int]]:
    """Return durations by function and thread, by start."""
    known = [(at, name, "") for at, name in _core.describe(path)["functions"]]
    calls, found = Columns(_core.calls(path, catalogue, {"functions": known})), defaultdict(list)
    for function, tid, ns in zip(calls.function, calls.tid.tolist(), calls.duration_ns.tolist()):
        found[function, tid].append(ns)
    return found


def test_kprobes_and_function_graph_agree(recorded: Recorded) -> None:
    """A kprobe's return probe fires after function_graph's exit, its entry before: each of its
    calls encloses the other's."""
    kprobes: list[_core.Probe] = []
    for event in _core.describe(recorded.merged)["events"]:
        group, name = event.split(":")
        function = name.removesuffix("__return")
        role = "entry" if name == function else "return"
        if group == "fuse_kernel":
            kprobes.append(_core.Probe(event, "kernel", function, "", role))
    returning = {row.function for row in kprobes if row.role == "return"}
    by_kprobe = calls_of(recorded.merged, [row for row in kprobes if row.function in returning])
    by_graph = calls_of(recorded.merged, GRAPH)
    # Calls still waiting when the recorders stop, one after the other, have no end in the first.
    waiting = {"fuse_dev_do_read"}
    compared = 0
    for key in {key for key in {*by_kprobe, *by_graph} if key[0] in returning - waiting}:
        assert len(by_kprobe[key]) == len(by_graph[key]), key
        for probe, graph in zip(by_kprobe[key], by_graph[key]):
            assert graph < probe
            compared += 1
    assert compared >= (5000 if recorded.name == CLIENT else 80)


def requests_of_perf(recorded: Recorded) -> list[tuple[int, int, int]]:
    """Return (unique, opcode, -errno) of each ended request, as stock perf prints them."""
    script = data.unpack(
        f"kernels/{recorded.name}/recording/perf-script.txt.zst", recorded.folder / "script.txt"
    )
    found = re.findall(
        r"fuse_kernel:fuse_request_end: .* unique=(\d+) opcode=(\d+) .*error=(-?\d+)",
        script.read_text(),
    )
    (recorded.folder / "script.txt").unlink()
    return [(int(unique), int(opcode), int(error)) for unique, opcode, error in found]


def test_every_request_from_queue_to_end(recorded: Recorded) -> None:
    recording = fusetools.open(recorded.merged)
    asked = recording.counts().facts.requests
    expected = 5525 if recorded.name == CLIENT else 31
    assert (asked.begun, asked.ended, asked.matched) == (expected,) * 3
    assert recording.hist().facts.requests == asked
    r = Columns(recording.requests())
    assert (r.begin_ns > 0).all() and (r.end_ns > r.begin_ns).all()
    if recorded.name == CLIENT:
        return  # its probe on the copy to the daemon has no such field
    theirs = requests_of_perf(recorded)
    assert sorted(zip(r.unique.tolist(), r.opcode.tolist(), r.error.tolist())) == sorted(theirs)
    assert (r.sent_ns > r.begin_ns).all() and (r.end_ns > r.sent_ns).all()
    # Nobody waits for two releases; every other caller continues. A read-ahead's caller may wait
    # for one of its pages.
    waited = r.runs_ns > 0
    assert sorted(r.opcode[~waited].tolist()) in ([15, 18, 29], [18, 29])
    assert (r.runs_ns[waited] > r.sent_ns[waited]).all()


@pytest.mark.parametrize("end", ["fuse_kernel:fuse_request_end", "fuse:fuse_request_end"])
@pytest.mark.parametrize("kernel", KERNELS[2:])
def test_a_kprobes_begin_and_either_end(kernel: str, end: str, tmp_path: Path) -> None:
    """6.12 numbers a request after it is queued: its copy to the daemon has the number."""
    path = data.unpack(f"kernels/{kernel}/recording/perf.data.zst", tmp_path / "perf.data")
    catalogue: list[_core.Probe] = [
        _core.Probe("fuse_kernel:fuse_dev_queue_req", "request", "", "", "begin"),
        _core.Probe("fuse_kernel:fuse_copy_args", "request", "", "", "sent"),
        _core.Probe(end, "request", "", "", "end"),
    ]
    counts = dict.fromkeys(("begun", "ended", "matched"), 31)
    assert _core.scan(path, catalogue, {})["requests"] == {**counts, "unanswered": 0}
    connection = 34 if kernel.startswith("6.12") else None
    numbers = Columns(_core.requests(path, catalogue, {}, {})).connection
    if end == "fuse:fuse_request_end" and connection:
        assert set(numbers.tolist()) == {connection}
    # If one of two mounts is requested, the daemon that copies a request decides its mount.
    pid = next(pid for pid in daemons(path))
    for asked, matched in ((45, 31), (46, 0)):
        found = _core.scan(
            path,
            [*catalogue[:2], _core.Probe("fuse_kernel:fuse_request_end", "request", "", "", "end")],
            {"connections": [asked], "daemons": [(pid, 45)]},
        )
        assert found["requests"]["matched"] == found["requests"]["begun"] == matched


def daemons(path: Path) -> set[int]:
    rows: list[_core.Probe] = [
        _core.Probe("fuse_daemon:cvmfs_lookup", "daemon", "cvmfs_lookup", "lookup", "entry"),
        _core.Probe("fuse_daemon:cvmfs_getattr", "daemon", "cvmfs_getattr", "getattr", "entry"),
        _core.Probe("fuse_kernel:fuse_dev_do_write", "daemon", "fuse_dev_do_write", "", "entry"),
        _core.Probe(
            "fuse_kernel:fuse_dev_do_write__return", "daemon", "fuse_dev_do_write", "", "return"
        ),
    ]
    return set(Columns(_core.calls(path, rows, {})).pid.tolist())


def test_a_kernel_functions_operation(newest: Recorded) -> None:
    found = {
        (h.function, h.operation): h.count
        for h in fusetools.open(newest.merged).hist("*", layers=["kernel"]).histograms
    }
    # By the requests made in it; their operation has the function's name here.
    assert found["fuse_lookup", "lookup"] == 9
    assert found["fuse_dentry_revalidate", "lookup"] == 2
    of_send = {key[1]: n for key, n in found.items() if key[0] == "__fuse_simple_request"}
    requests = fusetools.open(newest.merged).hist(layers=["request"]).histograms
    foreground = {h.operation: h.count for h in requests if h.operation in of_send}
    assert of_send == foreground and sum(of_send.values()) == 28
    # Without a named function, the calls from outside are shown.
    summary = {
        h.function
        for h in fusetools.open(newest.merged).hist("lookup").histograms
        if h.layer == "kernel"
    }
    assert summary == {"fuse_lookup", "fuse_dentry_revalidate"}
    # Each call is shown once, however many requests it made.
    counts = fusetools.open(newest.merged).counts("^__fuse_simple_request$").counts
    assert [c.count for c in counts] == [28]


@pytest.mark.parametrize("size", [0, 10, 200, 3000, 100_000, 300_000, 450_000])
def test_damaged_recordings_give_figures_or_an_error(
    newest: Recorded, size: int, run: Invoke
) -> None:
    path = newest.folder / "damaged.data"
    path.write_bytes(newest.merged.read_bytes()[:size])
    for args in (["graph"], ["graph", "--calls", "--json"], ["hist", "fuse_lookup"], ["count"]):
        result = run(*args, "-i", str(path))
        assert result.exit_code in (0, 1)
        if result.exit_code:
            assert re.match(r"fusetools: .+\n  why: .+\n  fix: .+\n$", result.stderr)
        elif "--json" in args:
            assert json.loads(result.stdout)["recording"]["warnings"]
        else:
            assert "warning: " in result.stdout


# merge


def test_merge_by_hand(newest: Recorded, run: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "out.data"
    inputs = [str(newest.folder / name) for name in ("perf.data", "trace.dat")]
    result = run("merge", *inputs, "-o", str(out))
    assert result.exit_code == 0
    assert re.fullmatch(rf"{re.escape(str(out))}: [\d,]+ records\n", result.stdout)
    assert out.read_bytes() == newest.merged.read_bytes()


def convert(newest: Recorded, to: Path, compression: str = "any") -> Path:
    if not shutil.which("trace-cmd"):
        pytest.skip("no trace-cmd")
    command = ["trace-cmd", "convert", "--file-version", "7", "--compression", compression]
    command += ["-i", str(newest.folder / "trace.dat"), "-o", str(to)]
    subprocess.run(command, check=True, capture_output=True)
    smaller = to.stat().st_size < (newest.folder / "trace.dat").stat().st_size / 2
    assert smaller == (compression == "any")
    return to


@pytest.mark.parametrize("compression", ["any", "none"])
def test_merge_converts_version_7(
    newest: Recorded, run: Invoke, tmp_path: Path, compression: str
) -> None:
    seven, out = convert(newest, tmp_path / "v7.dat", compression), tmp_path / "out.data"
    result = run("merge", str(newest.folder / "perf.data"), str(seven), "-o", str(out))
    assert result.exit_code == 0
    theirs = Counter(by_trace_cmd(newest.report))
    assert Counter(by_us(fusetools.open(out).graph_calls().calls)) == theirs


def test_merge_without_trace_cmd(
    newest: Recorded, run: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seven, out = convert(newest, tmp_path / "v7.dat"), tmp_path / "out.data"
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("merge", str(newest.folder / "perf.data"), str(seven), "-o", str(out))
    assert result.exit_code == 1 and not out.exists()
    assert "there is no trace-cmd here to convert it" in result.stderr
    assert "trace-cmd convert --file-version 6" in result.stderr


@pytest.mark.parametrize(
    "content", [b"", b"no recording", b"\x17\x08\x44tracing7\0", b"\x17\x08\x44tracing6\0" * 9]
)
def test_merge_says_what_it_cannot_read(
    newest: Recorded, run: Invoke, tmp_path: Path, content: bytes
) -> None:
    bad, out = tmp_path / "bad.dat", tmp_path / "out.data"
    bad.write_bytes(content)
    result = run("merge", str(newest.folder / "perf.data"), str(bad), "-o", str(out))
    assert result.exit_code == 1 and not out.exists()
    assert re.match(r"fusetools: .+\n  why: .+\n", result.stderr)
