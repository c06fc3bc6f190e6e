"""Stages and stories of real recordings, compared with a stitching by hand of stock perf's
output."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import data
import golden
import numpy as np
import pytest
from columns import Columns
from fixtures import Invoke
from script import Event, events

import fusetools
from fusetools import _core, session
from fusetools._core import Catalogue, Probe
from fusetools.answers.filters import Filters
from fusetools.render.json.answer import render
from fusetools.results.facts import Requests

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples/recordings/demo.data"
CLIENT = "cernvmfs-6.1"
READS = {0: "read", 19: "readv", 275: "splice"}  # on x86-64


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CernVM-FS client with kprobes and function_graph, without system calls."""
    folder = tmp_path_factory.mktemp("client")
    inputs = [data.unpack(f"{CLIENT}/{n}.zst", folder / n) for n in ("perf.data", "trace.dat")]
    _core.merge(inputs, folder / "merged.data", "")
    return folder / "merged.data"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("stages", []),
        ("stages-unit", ["lookup", "--unit", "us"]),
        ("stages-overhead", ["getattr", "--overhead"]),
        ("stages-by-thread", ["--by", "daemon-thread", "getattr"]),
        ("stages-json", ["lookup", "--json"]),
    ],
)
def test_demo(run: Invoke, name: str, args: list[str]) -> None:
    said = run("stages", "-i", str(DEMO), *args)
    assert said.exit_code == 0
    printed = said.output.replace(f" -i {DEMO}", "")  # the absolute place of this tree
    golden.check(f"{name}.txt", printed)
    assert name.endswith(("json", "unit")) or all(len(line) <= 80 for line in printed.splitlines())


def test_client(run: Invoke, client: Path) -> None:
    said = run("stages", "-i", str(client))
    printed = said.output.replace(f" -i {client}", "")
    golden.check("stages-cvmfs.txt", printed)
    assert all(len(line) <= 80 for line in printed.splitlines())


def check_sums(found: dict[str, Any]) -> None:
    """The stages sum up to the whole, to the nanosecond."""
    assert found["operations"]
    for o in found["operations"]:
        assert o["requests"] == o["matched"] + sum(o["unmatched"].values())
        stages = o["stages"]
        assert sum(s["total_ns"] for s in stages) == o["total_ns"]
        if not o["matched"]:
            continue
        assert sum(s["share"] for s in stages) == pytest.approx(1)
        assert sum(s["mean_ns"] for s in stages) == pytest.approx(o["mean_ns"])
        assert o["mean_ns"] == o["total_ns"] / o["matched"]
        for s in stages:
            assert 0 < s["requests"] <= o["matched"]
            assert 0 <= s["p50_ns"] <= s["p99_ns"] <= s["max_ns"]
            assert s["probes_ns"] is None or 0 <= s["probes_ns"] <= s["total_ns"]
            assert not s["parts_ns"] or sum(s["parts_ns"].values()) == s["total_ns"]
            assert all(ns >= 0 for ns in s["parts_ns"].values())


@pytest.mark.parametrize("by", ["", "comm", "pid", "daemon-thread", "mount", "size"])
def test_sums(run: Invoke, client: Path, by: str) -> None:
    for path in (DEMO, client):
        found = json.loads(render("stages", fusetools.open(path).stages(by=by)))
        check_sums(found)
        whole = json.loads(run("stages", "-i", str(path), "--json").stdout)
        for key in ("requests", "matched", "total_ns"):
            assert sum(o[key] for o in found["operations"]) == sum(
                o[key] for o in whole["operations"]
            )
        requests = fusetools.open(path).counts().facts.requests
        assert found["recording"]["requests"] == vars(requests)
        if by:
            assert found["by"] == by
            assert len(found["operations"]) >= len(whole["operations"])


def test_the_issues_shape(run: Invoke) -> None:
    found = json.loads(run("stages", "-i", str(DEMO), "--json").stdout)["operations"]
    for o in found:
        assert {"operation", "requests", "matched", "stages", "mean_ns"} <= o.keys()
        for s in o["stages"]:
            assert {"name", "mean_ns", "p50_ns", "p99_ns", "share"} <= s.keys()


def test_filters(run: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = fusetools.open(DEMO)
    everything = recording.stages("lookup").operations[0]
    middle = int(recording.counts().facts.seconds / 2 * 1e9)
    parts = [
        recording.stages("lookup", filters=filters).operations
        for filters in (Filters(end_ns=middle), Filters(start_ns=middle))
    ]
    assert sum(o.matched for part in parts for o in part) == everything.matched
    assert not recording.stages(filters=Filters(comms=("nobody",))).operations
    whole = len(Columns(recording.requests()))
    assert recording.stages(filters=Filters(comms=("grep",))).facts.requests.matched == whole
    assert (
        recording.stages(filters=Filters(mounts=("/mnt/sample",))).facts.requests.matched == whole
    )
    monkeypatch.chdir("/")
    assert recording.stages(filters=Filters(mounts=("mnt/sample",))).facts.requests.matched == whole
    # A bind mount.
    kept = recording._source.session
    mounts = tuple(replace(mount, also=("/bind",)) for mount in kept.mounts)
    text = session.encoded(replace(kept, mounts=mounts))
    recording._source.session = session.read(text)[0]
    assert recording.stages(filters=Filters(mounts=("/bind/",))).facts.requests.matched == whole
    wrong = run("stages", "-i", str(DEMO), "no-such")
    assert wrong.exit_code == 1 and "no FUSE operation matches no-such" in wrong.stderr
    assert f"fix: fusetools count --layer request -i {DEMO}" in wrong.stderr
    assert run("stages", "-i", str(DEMO), "write").stdout.startswith("no requests of ")


# Against stock perf


def of_demo(lines: list[Event]) -> dict[int, dict[str, int]]:
    """Return the marks of each request by its number: one caller, one request after another."""
    marks: dict[int, dict[str, int]] = {}
    # The thread's system call: its entry, and the end of its last request
    caller: dict[str, int] = {}
    daemon: dict[int, dict[str, int]] = defaultdict(dict)
    last = now = 0
    for line in lines:
        name = line.name.partition(":")[2]
        request = marks.get(now, {})
        if name == "fuse_request_send":
            now = line.number("req")
            marks[now] = request = {"begin": line.time}
            if line.number("opcode") in (18, 29):  # release, releasedir: nobody waits
                continue
            request.update(caller)
            caller.clear()
            last = line.tid
        elif name == "fuse_request_end":
            request = marks[line.number("req")]
            request.update(end=line.time, reply=daemon[line.tid]["enter"])
        elif name == "sched_waking":
            woken = line.number("pid")
            waits = "sys_enter" in request or "resumed" in request
            if woken == last and "end" in request and waits:
                request.setdefault("waking", line.time)
            elif line.tid == last and "end" not in request and "comm=samplefs" in line.text:
                request.setdefault("daemon_waking", line.time)
        elif name == "sched_switch" or line.name == "PERF_RECORD_SWITCH_CPU_WIDE":
            runs = line.number("next_pid") if name else line.tid if "IN" in line.text else 0
            if runs == last and "waking" in request and "runs" not in request:
                request["runs"] = caller["resumed"] = line.time
        elif name.startswith("cvmfs_"):
            if name.endswith("__return"):
                request = marks[daemon[line.tid]["unique"]]
                request["callback_return"] = line.time
            else:
                unique = line.number("unique")
                daemon[line.tid]["unique"] = unique
                marks[unique].update(callback_enter=line.time, read=daemon[line.tid]["exit"])
        elif name in ("sys_enter", "sys_exit"):
            which = name[4:]
            if which == "enter" or line.number("NR") in READS:
                daemon[line.tid][which] = line.time
            if line.tid == last or not last:
                if which == "exit" and "resumed" in caller:
                    request["sys_exit"] = line.time
                caller = {"sys_enter": line.time} if which == "enter" else {}
    return marks


def test_marks_of_the_demo_are_perf_scripts() -> None:
    """All marks of all requests."""
    stories = Columns(fusetools.open(DEMO).requests())
    theirs = of_demo(events(DEMO, switches=True))
    assert len(theirs) == len(stories.unique) > 300
    compared = 0
    for i, unique in enumerate(stories.unique):
        expected = theirs[int(unique)]
        for mark in stories.marks:
            mine = int(getattr(stories, f"{mark}_ns")[i])
            if mark == "daemon_runs":  # derived: when the thread runs and is free
                continue
            seen = expected.get(mark, 0)
            if mark == "leaves" and "sys_exit" in expected and stories.syscall[i] in READS.values():
                # After a getattr in read(), the rest is the read's own.
                name = stories.operation[i]
                seen = 0 if name == "read" else expected["runs"]
            assert mine == seen, (unique, mark)
            compared += mine > 0
    assert compared > len(theirs) * 8


def test_system_calls_are_their_requests_and_the_rest() -> None:
    """All answers agree about them, and stock perf gives their durations."""
    recording = fusetools.open(DEMO)
    calls = recording.stages().calls
    waited = sum(o.total_ns for o in recording.stages().operations if o.waits)
    assert sum(call.in_requests_ns for call in calls) == waited
    assert all(c.total_ns == c.in_requests_ns + c.rest_ns for c in calls)
    by_mount = recording.stages(by="mount").calls
    assert sum(c.rest_ns for c in by_mount) == sum(c.rest_ns for c in calls) > 0
    (read,) = [c for c in calls if c.syscall == "read"]
    (series,) = [h for h in recording.hist("read").histograms if h.layer == "syscall"]
    assert (series.function, series.count, series.total_ns) == ("read", read.calls, read.total_ns)
    slow = [c for c in recording.slowest(most=1000).calls if c.syscall == "read"]
    assert sum(sum(c.outside_ns.values()) for c in slow) == read.rest_ns
    # Count the workload's reads of files on the mount, by the descriptors that opens returned.
    entered: dict[int, tuple[int, int, int]] = {}
    opened: set[tuple[int, int]] = set()
    whole = count = 0
    # Durations of reads (0) and fcntls (72) that made no request.
    cached: dict[int, list[int]] = {0: [], 72: []}
    makes: set[int] = set()
    for line in events(DEMO):
        if line.name == "fuse:fuse_request_send":
            makes.add(line.tid)
        elif line.name == "raw_syscalls:sys_enter":
            first = int(line.text.split("(")[1].split(",")[0], 16)
            entered[line.tid] = line.number("NR"), first, line.time
            makes.discard(line.tid)
        elif line.name == "raw_syscalls:sys_exit" and line.tid in entered:
            number, first, since = entered.pop(line.tid)
            result = int(line.text.rsplit("= ", 1)[1])
            if number == 257 and result >= 0 and line.tid in makes:
                opened.add((line.pid, result))
            elif number == 257 or number == 3:
                opened.discard((line.pid, result if number == 257 else first))
            elif number == 0 and (line.pid, first) in opened:
                whole, count = whole + line.time - since, count + 1
            if number in cached and (line.pid, first) in opened and line.tid not in makes:
                cached[number].append(line.time - since)
    assert (read.calls, read.total_ns) == (count, whole)
    assert read.cached is None and not cached[0]
    (fcntl,) = [c for c in calls if c.syscall == "fcntl"]
    assert fcntl.cached and fcntl.cached.calls == fcntl.calls
    figures = fcntl.cached.calls, fcntl.cached.total_ns, fcntl.cached.max_ns
    assert figures == (len(cached[72]), sum(cached[72]), max(cached[72]))


def test_marks_of_the_client_are_perf_scripts(client: Path) -> None:
    """Begin, copy, callback, its return and the end of all 5,525 requests."""
    path = client.parent / "perf.data"
    stories = Columns(fusetools.open(path).requests())
    marks: dict[int, dict[str, int]] = defaultdict(dict)
    serving: dict[int, int] = {}
    for line in events(path, switches=True):
        name = line.name.partition(":")[2]
        if name.startswith("cvmfs_") and name.endswith("__return"):
            marks[serving.pop(line.tid)]["callback_return"] = line.time
        elif name.startswith("cvmfs_"):
            serving[line.tid] = unique = line.number("unique")
            marks[unique]["callback_enter"] = line.time
        elif name == "queue_request":
            marks[line.number("unique")]["begin"] = line.time
        elif name == "fuse_copy_args" and line.number("write") == 1:
            marks[line.number("unique")]["sent"] = line.time
        elif name == "fuse_request_end":
            marks[line.number("unique")]["end"] = line.time
    assert len(marks) == len(stories.unique) == 5525
    for mark in ("begin", "sent", "callback_enter", "end", "callback_return"):
        mine = dict(zip(stories.unique.tolist(), getattr(stories, f"{mark}_ns").tolist()))
        assert mine == {unique: found.get(mark, 0) for unique, found in marks.items()}


def test_switches_of_the_client_are_perf_scripts(client: Path) -> None:
    """Return how long the daemon slept and waited for a CPU in its callbacks, thread by thread."""
    path = client.parent / "perf.data"
    stories = Columns(fusetools.open(path).requests())
    spans = defaultdict(list)  # for each thread: (from, to, state)
    since: dict[int, tuple[int, str]] = {}
    for line in events(path, switches=True):
        name = line.name.partition(":")[2]
        if name == "sched_waking":
            woken = line.number("pid")
            if since.get(woken, (0, ""))[1] == "blocked":
                spans[woken].append((since[woken][0], line.time, "blocked"))
                since[woken] = (line.time, "runnable")
        if name != "sched_switch" and line.tid in since:
            # It runs: the switch to it is missing in the recording (of perf itself).
            start, state = since.pop(line.tid)
            spans[line.tid].append((start, line.time, state))
        elif name == "sched_switch":
            prev, next_ = (line.number(f"{which}_pid") for which in ("prev", "next"))
            if next_ in since:
                start, state = since.pop(next_)
                spans[next_].append((start, line.time, state))
            if prev in since:
                start, state = since.pop(prev)
                spans[prev].append((start, line.time, state))
            ready = "prev_state=R" in line.text
            since[prev] = (line.time, "runnable" if ready else "blocked")
    seen = 0
    for i in np.flatnonzero((stories.callback_enter_ns > 0) & (stories.reply_ns > 0)):
        start, end = int(stories.callback_enter_ns[i]), int(stories.reply_ns[i])
        for state in ("blocked", "runnable"):
            inside = sum(
                min(to, end) - max(begin, start)
                for begin, to, of in spans[int(stories.daemon_tid[i])]
                if of == state and to > start and begin < end
            )
            assert int(getattr(stories, f"{state}_ns")[i]) == inside, (i, state)
            seen += inside > 0
    assert seen > 50


# The same requests from different sources


KERNELS = ("5.10.0-46-amd64", "6.1.0-56-amd64", "6.12.117+deb13-amd64", "7.2.13+deb14-amd64")


def stages_of(path: Path, **keep: Any) -> dict[tuple[str, bool], list[str]]:
    recording = fusetools.open(path)
    if keep:
        # Use only one of this recording's sources of requests. The daemon's system calls are
        # recorded only in part.
        source = recording._source
        kept = [
            p
            for p in source.probes
            if p.layer in ("syscall", "daemon") or p.function.startswith("fuse_dev_do_")
        ]
        events = source.described["events"]
        source.catalogue = Catalogue([*kept, *keep["request"]], events)
    found = recording.stages()
    assert found.facts.requests == Requests(31, 31, 31)
    for o in found.operations:
        assert o.matched == o.requests and sum(s.total_ns for s in o.stages) == o.total_ns
    return {(o.operation, o.waits): [s.name for s in o.stages] for o in found.operations}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kprobes_and_function_graph_tell_the_same(kernel: str, tmp_path: Path) -> None:
    inputs = [
        data.unpack(f"kernels/{kernel}/recording/{name}.zst", tmp_path / name)
        for name in ("perf.data", "trace.dat")
    ]
    _core.merge(inputs, tmp_path / "merged.data", "")
    by_kprobes = stages_of(inputs[0])
    assert by_kprobes == stages_of(tmp_path / "merged.data")
    whole = ["vfs_entry", "setup", "queue", "dispatch", "daemon", "reply", "caller_wakeup"]
    assert by_kprobes["lookup", True] == whole
    assert by_kprobes["readdir", True] == [*whole, "vfs_exit"]
    assert by_kprobes["release", False] == whole[2:6]
    assert by_kprobes["flush", True] == [*whole[:3], *whole[4:], "vfs_exit"]


def test_tracepoints_tell_the_same(tmp_path: Path) -> None:
    """Linux 7.2 has both; without kernel functions VFS entry and setup are one stage."""
    source = f"kernels/{KERNELS[-1]}/recording/perf.data.zst"
    path = data.unpack(source, tmp_path / "perf.data")
    roles = {"send": "begin", "sent": "sent", "end": "end"}
    tracepoints = [
        Probe(f"fuse:fuse_request_{name}", "request", "", "", role) for name, role in roles.items()
    ]
    told = stages_of(path, request=tracepoints)
    for key, by_kprobes in stages_of(path).items():
        joined = "/".join(by_kprobes)
        for before in ("vfs_entry", "between"):
            joined = joined.replace(f"{before}/setup", f"{before}+setup")
        if joined.startswith("vfs_entry/between+setup"):
            joined = joined.replace("vfs_entry", "vfs_entry+setup", 1)
        assert "/".join(told[key]) == joined
