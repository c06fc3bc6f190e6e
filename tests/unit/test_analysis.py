"""The core's findings in the shared recordings, compared with independent sources.

The sources are the file system's own counters, and a simple pairing of stock `perf script`'s lines.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from columns import Columns

from fusetools import _core

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("FUSETOOLS_DATA", ROOT.parent / "shared" / "data"))
KERNELS = ("5.10.0-46-amd64", "6.1.0-56-amd64", "6.12.117+deb13-amd64", "7.2.13+deb14-amd64")
# The titles of the client's histograms.
CALLBACKS = {
    "Lookup": "lookup",
    "Forget": "forget",
    "Multi-Forget": "forget_multi",
    "Getattr": "getattr",
    "Readlink": "readlink",
    "Opendir": "opendir",
    "Releasedir": "releasedir",
    "Readdir": "readdir",
    "Open": "open",
    "Read": "read",
    "Release": "release",
}
# x86-64
SYSCALLS = {
    0: "read",
    3: "close",
    79: "getcwd",
    217: "getdents64",
    257: "openat",
    262: "newfstatat",
}
TYPES = {
    "layer": "u1",
    "function": "<u2",
    "opcode": "<u4",
    "error": "<i4",
    "pid": "<i4",
    "tid": "<i4",
}


class Event(NamedTuple):
    comm: str
    tid: int
    time: int
    name: str
    text: str

    def number(self, field: str) -> int:
        found = re.search(rf"\b{field}[= ](-?\w+)", self.text)
        assert found, f"no {field} in {self.text}"
        return int(found[1], 0)


LINE = re.compile(r"\s*(.+?)\s+(\d+)\s+\[\d+\]\s+(\d+)\.(\d{9}):\s+(\w+:\w+):\s?(.*)")


def parse(text: str) -> list[Event]:
    found = (LINE.fullmatch(line) for line in text.splitlines())
    return [Event(m[1], int(m[2]), int(m[3] + m[4]), m[5], m[6]) for m in found if m]


def unpacked(packed: Path, folder: Path) -> Path:
    if not packed.exists():
        pytest.skip(f"the shared recording {packed} is not here")
    out = folder / packed.parent.parent.name / packed.stem
    out.parent.mkdir(exist_ok=True)
    subprocess.run(["zstd", "-q", "-d", "-f", packed, "-o", out], check=True)
    return out


@pytest.fixture(scope="module")
def cvmfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(DATA / "cernvmfs-6.1/perf.data.zst", tmp_path_factory.mktemp("cvmfs"))


@pytest.fixture(scope="module")
def cvmfs_events(cvmfs: Path) -> list[Event]:
    if not shutil.which("perf"):
        pytest.skip("there is no perf to compare with")
    fields = ["-F", "comm,tid,cpu,time,event,trace", "--ns"]
    script = ["perf", "script", "-f", "-i", str(cvmfs), *fields]
    return parse(subprocess.run(script, check=True, capture_output=True, text=True).stdout)


class Kernel(NamedTuple):
    name: str
    path: Path
    events: list[Event]


def of_kernel(name: str, folder: Path) -> Kernel:
    recording = DATA / "kernels" / name / "recording"
    path = unpacked(recording / "perf.data.zst", folder)
    script = unpacked(recording / "perf-script.txt.zst", folder)
    return Kernel(name, path, parse(script.read_text()))


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return of_kernel(request.param, tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """Its fuse tracepoints suffice: the sender, the reader, the right number."""
    return of_kernel(KERNELS[-1], tmp_path_factory.mktemp("newest"))


REQUESTS: list[_core.Probe] = [
    _core.Probe("fuse:fuse_request_send", "request", "", "", "begin"),
    _core.Probe("fuse:fuse_request_sent", "request", "", "", "sent"),
    _core.Probe("fuse:fuse_request_end", "request", "", "", "end"),
]
KPROBES: list[_core.Probe] = [
    _core.Probe("fuse_kernel:queue_request", "request", "", "", "begin"),
    _core.Probe("fuse_kernel:queue_request_and_unlock", "request", "", "", "begin"),
    _core.Probe("fuse_kernel:fuse_request_end", "request", "", "", "end"),
]
SYSTEM_CALLS: list[_core.Probe] = [
    _core.Probe("raw_syscalls:sys_enter", "syscall", "", "", "sys_enter"),
    _core.Probe("raw_syscalls:sys_exit", "syscall", "", "", "sys_exit"),
]


def functions(path: Path) -> list[_core.Probe]:
    """Return each probe on a function, by the naming convention."""
    rows = []
    for event in _core.describe(path)["events"]:
        group, name = event.split(":")
        layer = {"fuse_daemon": "daemon", "fuse_kernel": "kernel"}.get(group)
        if layer:
            function = name.removesuffix("__return")
            role = "entry" if name == function else "return"
            operation = function.removeprefix("cvmfs_")
            rows.append(_core.Probe(event, layer, function, operation, role))
    return rows


def durations(events: list[Event], group: str) -> tuple[dict[str, list[int]], Counter[str]]:
    """Return durations by function, and the numbers of unmatched entries and returns."""
    open_calls: dict[tuple[int, str], list[int]] = defaultdict(list)
    found: dict[str, list[int]] = defaultdict(list)
    unmatched: Counter[str] = Counter()
    returns = {e.name for e in events if e.name.endswith("__return")}
    for event in events:
        prefix, name = event.name.split(":")
        if prefix != group:
            continue
        function = name.removesuffix("__return")
        calls = open_calls[event.tid, function]
        if name == function:
            if f"{event.name}__return" in returns:
                calls.append(event.time)
            found[function] += []
        elif calls:
            found[function].append(event.time - calls.pop())
        else:
            unmatched[function] += 1
    for (_, function), calls in open_calls.items():
        unmatched[function] += len(calls)
    return found, unmatched


def check(series: _core.Fields, expected: list[int]) -> None:
    """Return every figure of a histogram, computed from the durations themselves."""
    expected = sorted(expected)
    assert series["count"] == len(expected)
    assert series["total_ns"] == sum(expected)
    if not expected:
        assert (series["min_ns"], series["max_ns"]) == (None, None)
        assert series["buckets"] == ()
        assert series["percentiles_ns"] == {}
        return
    assert (series["min_ns"], series["max_ns"]) == (expected[0], expected[-1])
    buckets = Counter(max(ns.bit_length() - 1, 0) for ns in expected)
    for low, high, n in series["buckets"]:
        k = max(low.bit_length() - 1, 0)
        assert (low, high) == (2**k if k else 0, 2 ** (k + 1) - 1)
        assert n == buckets.pop(k, 0)
    assert not buckets
    assert list(series["percentiles_ns"]) == ["50", "90", "95", "99", "99.9"]
    for name, ns in series["percentiles_ns"].items():
        exact = expected[math.ceil(len(expected) * round(float(name) * 10) / 1000) - 1]
        assert exact <= ns <= exact * (1 + 1 / 2048)


def by_name(scan: _core.Scan, layer: str) -> dict[tuple[str, str], _core.Fields]:
    found = {(s["function"], s["operation"]): s for s in scan["series"] if s["layer"] == layer}
    assert len(found) == sum(s["layer"] == layer for s in scan["series"])
    return found


def client_counts(path: Path) -> dict[str, int]:
    text = path.read_text()
    found = {}
    for title, callback in CALLBACKS.items():
        table = re.search(rf"^{title}\n +nsec .*?^ +total : +(\d+)$", text, re.M | re.S)
        assert table, title
        found[callback] = int(table[1])
    return found


def test_callbacks_as_the_client_counted_them(cvmfs: Path) -> None:
    before, after = (
        client_counts(DATA / f"cernvmfs-6.1/client-{when}.txt") for when in ("before", "after")
    )
    truth = {f"cvmfs_{name}": after[name] - before[name] for name in after}
    assert len(truth) == 11
    assert sum(truth.values()) > 2000
    scan = _core.scan(cvmfs, functions(cvmfs), {})
    found = {s["function"]: s for s in scan["series"] if s["layer"] == "daemon"}
    for function, calls in truth.items():
        assert (found[function]["count"] if function in found else 0) == calls, function
    assert all(s["unmatched"] == 0 and s["entries"] == s["count"] for s in found.values())


def test_every_duration_of_the_client(cvmfs: Path, cvmfs_events: list[Event]) -> None:
    scan = _core.scan(cvmfs, functions(cvmfs), {})
    for layer in ("daemon", "kernel"):
        expected, unmatched = durations(cvmfs_events, f"fuse_{layer}")
        found = by_name(scan, layer)
        assert {function for function, _ in found} == set(expected)
        for (function, _), series in found.items():
            check(series, expected[function])
            assert series["unmatched"] == unmatched[function]
            assert series["entries"] == sum(
                e.name == f"fuse_{layer}:{function}" for e in cvmfs_events
            )
    lookups = by_name(scan, "daemon")["cvmfs_lookup", "lookup"]
    assert lookups["count"] == 1832
    assert len(lookups["buckets"]) > 5
    assert dict(scan["events"])["sched:sched_switch"] == sum(
        e.name == "sched:sched_switch" for e in cvmfs_events
    )
    assert (scan["first"], scan["last"]) == (cvmfs_events[0].time, cvmfs_events[-1].time)


def test_every_duration_of_four_kernels(kernel: Kernel) -> None:
    scan = _core.scan(kernel.path, functions(kernel.path), {})
    for layer in ("daemon", "kernel"):
        expected, unmatched = durations(kernel.events, f"fuse_{layer}")
        found = by_name(scan, layer)
        assert {function for function, _ in found} == set(expected)
        for (function, _), series in found.items():
            check(series, expected[function])
            assert series["unmatched"] == unmatched[function]


def pair_requests(
    events: list[Event], begin: str, end: str, field: str
) -> Iterator[tuple[Event, Event | None]]:
    ends = {e.number(field): e for e in events if e.name == end}
    for event in events:
        if event.name == begin:
            yield event, ends.get(event.number(field))


@pytest.mark.parametrize("cvmfs_client", [True, False])
def test_requests_by_kprobes(
    cvmfs_client: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The client's 5,525 requests by kprobes, and 31 on each of the kernels 5.10 and 6.1."""
    if cvmfs_client:
        events = request.getfixturevalue("cvmfs_events")
        cases = [Kernel("cvmfs", request.getfixturevalue("cvmfs"), events)]
    else:
        cases = [of_kernel(name, tmp_path) for name in KERNELS[:2]]
    for kernel in cases:
        begin = "fuse_kernel:queue_request"
        begin += "" if cvmfs_client else "_and_unlock"
        pairs = [*pair_requests(kernel.events, begin, "fuse_kernel:fuse_request_end", "unique")]
        assert len(pairs) == (5525 if cvmfs_client else 31)
        expected = defaultdict(list)
        for first, last in pairs:
            assert last
            expected[first.number("opcode")].append(last.time - first.time)
        scan = _core.scan(kernel.path, KPROBES, {})
        assert scan["requests"] == {
            **dict.fromkeys(("begun", "ended", "matched"), len(pairs)),
            "unanswered": 0,
        }
        found = by_name(scan, "request")
        assert len(found) == len(expected)
        check(found["FUSE_LOOKUP", "lookup"], expected[1])
        check(found["FUSE_RELEASE", "release"], expected[18])


def test_requests_by_tracepoints(newest: Kernel) -> None:
    send, end = "fuse:fuse_request_send", "fuse:fuse_request_end"
    pairs = [*pair_requests(newest.events, send, end, "req")]
    assert len(pairs) == 31
    scan = _core.scan(newest.path, REQUESTS, {})
    assert scan["requests"] == {"begun": 31, "ended": 31, "matched": 31, "unanswered": 0}
    for (constant, operation), series in by_name(scan, "request").items():
        assert constant == f"FUSE_{operation.upper()}"
        check(series, [b.time - a.time for a, b in pairs if b and f"({constant})" in a.text])
        assert series["entries"] == series["count"]


def test_requests_that_were_sent_without_a_number(tmp_path: Path) -> None:
    """Linux 6.12 assigns the number after fuse_request_send: no pair is invented."""
    kernel = of_kernel(KERNELS[2], tmp_path)
    scan = _core.scan(kernel.path, REQUESTS, {})
    assert scan["requests"] == {"begun": 31, "ended": 31, "matched": 0, "unanswered": 0}
    for series in scan["series"]:
        assert (series["count"], series["unmatched"]) == (0, series["entries"])
    lookups = by_name(scan, "request")["FUSE_LOOKUP", "lookup"]
    assert lookups["entries"] == sum(
        "(FUSE_LOOKUP)" in e.text for e in kernel.events if "send" in e.name
    )


def system_calls(events: list[Event]) -> list[tuple[int, Event, Event]]:
    """(number, enter, exit)"""
    entered: dict[int, Event] = {}
    found = []
    for event in events:
        if event.name == "raw_syscalls:sys_enter":
            entered[event.tid] = event
        elif event.name == "raw_syscalls:sys_exit" and event.tid in entered:
            enter = entered.pop(event.tid)
            number = event.number("NR")
            if number == enter.number("NR"):
                found.append((number, enter, event))
    return found


@pytest.mark.parametrize("name", [KERNELS[2], KERNELS[3]])
def test_system_calls_that_made_requests(name: str, tmp_path: Path) -> None:
    kernel = of_kernel(name, tmp_path)
    expected = defaultdict(list)
    for number, enter, leave in system_calls(kernel.events):
        operations = {
            re.search(r"\(FUSE_(\w+)\)", e.text)[1].lower()  # type: ignore[index]
            for e in kernel.events
            if e.name == "fuse:fuse_request_send"
            and e.tid == enter.tid
            and enter.time < e.time < leave.time
        }
        for operation in operations:
            expected[SYSCALLS[number], operation].append(leave.time - enter.time)
    assert len(expected) > 5
    scan = _core.scan(kernel.path, REQUESTS + SYSTEM_CALLS, {})
    found = by_name(scan, "syscall")
    # A call that reads requests counts for nothing else; a call on a descriptor of the mount counts
    # even without a request (test_stages.py).
    assert ("read", "read") in found
    expected.pop(("read", "getattr"), None)
    assert set(expected) <= set(found)
    for key, series in found.items():
        if key[0] in ("read", "close", "getdents64", "fstat", "lseek"):
            assert series["entries"] >= len(expected[key])
        else:
            check(series, expected[key])


def test_columns(newest: Kernel) -> None:
    catalogue = functions(newest.path) + REQUESTS + SYSTEM_CALLS
    requests = Columns(_core.requests(newest.path, catalogue, {}, {}))
    pairs = [
        *pair_requests(newest.events, "fuse:fuse_request_send", "fuse:fuse_request_end", "req")
    ]
    assert requests.begin_ns.tolist() == [a.time for a, _ in pairs]
    assert requests.end_ns.tolist() == [b.time for _, b in pairs if b]
    assert requests.unique.tolist() == [a.number("req") for a, _ in pairs]
    assert requests.opcode.tolist() == [a.number("opcode") for a, _ in pairs]
    assert requests.connection.tolist() == [a.number("connection") for a, _ in pairs]
    assert requests.error.tolist() == [b.number("error") for _, b in pairs if b]
    assert requests.tid.tolist() == [a.tid for a, _ in pairs]
    # Callbacks by number: every request except the flush has one.
    callbacks = {}
    for event in newest.events:
        if event.name.startswith("fuse_daemon:") and not event.name.endswith("__return"):
            leave = (e for e in newest.events if e.name == f"{event.name}__return")
            leave = (e for e in leave if e.tid == event.tid and e.time > event.time)
            callbacks[event.number("unique")] = (event.time, next(leave).time)
    expected = [callbacks.get(a.number("req"), (0, 0)) for a, _ in pairs]
    assert expected.count((0, 0)) == 1
    found = zip(requests.callback_enter_ns.tolist(), requests.callback_return_ns.tolist())
    assert [*found] == expected

    calls = Columns(_core.calls(newest.path, catalogue, {}))
    for layer in ("kernel", "daemon"):
        expected_durations, _ = durations(newest.events, f"fuse_{layer}")
        for function, ns in expected_durations.items():
            chosen = calls.of(function) & (calls.layer == layer)
            assert sorted(calls.duration_ns[chosen].tolist()) == sorted(ns), function
    made = calls.layer == "syscall"
    assert made.any()
    entered = {(SYSCALLS.get(n), e.time) for n, e, _ in system_calls(newest.events)}
    assert set(zip(calls.function[made], calls.begin_ns[made].tolist())) <= entered
    opened = calls.unique[calls.of("cvmfs_open")]
    assert int(opened[0]) in {
        e.number("unique") for e in newest.events if e.name == "fuse_daemon:cvmfs_open"
    }


def test_callers_and_times(newest: Kernel) -> None:
    """By caller, connection and time, in every layer, as in the simple pairing."""
    catalogue = functions(newest.path) + REQUESTS + SYSTEM_CALLS
    sends = [e for e in newest.events if e.name == "fuse:fuse_request_send"]
    (comm,) = {e.comm for e in sends}
    tids = Counter(e.tid for e in sends)
    numbers = {e.number("req") for e in sends}
    whole = _core.scan(newest.path, catalogue, {})

    def daemon_calls(scan: _core.Scan) -> int:
        return sum(s["entries"] for s in scan["series"] if s["layer"] == "daemon")

    callbacks = [e for e in newest.events if "unique=" in e.text and e.name[:12] == "fuse_daemon:"]
    assert daemon_calls(whole) == len(callbacks)
    for filters in ({"comms": [comm]}, {"connections": [sends[0].number("connection")]}):
        scan = _core.scan(newest.path, catalogue, filters)  # type: ignore[arg-type]
        assert scan["requests"]["matched"] == 31
        assert daemon_calls(scan) == sum(e.number("unique") in numbers for e in callbacks)
    for filters in ({"comms": ["nobody"]}, {"connections": [1]}, {"pids": [1]}):
        scan = _core.scan(newest.path, catalogue, filters)  # type: ignore[arg-type]
        assert scan["requests"] == {"begun": 0, "ended": 0, "matched": 0, "unanswered": 0}
        assert not [s for s in scan["series"] if s["layer"] != "kernel"]
    for tid, n in tids.items():
        scan = _core.scan(newest.path, catalogue, {"pids": [tid]})
        assert scan["requests"]["begun"] == n
        mine = {e.number("req") for e in sends if e.tid == tid}
        assert daemon_calls(scan) == sum(e.number("unique") in mine for e in callbacks)
    assert daemon_calls(_core.scan(newest.path, catalogue, {"daemon_pids": [1]})) == 0

    first = newest.events[0].time
    start, end = sends[5].time - first, sends[15].time - first
    scan = _core.scan(newest.path, catalogue, {"from_ns": start, "to_ns": end})
    assert scan["requests"] == {"begun": 10, "ended": 10, "matched": 10, "unanswered": 0}
    inside = [e for e in callbacks if start <= e.time - first < end]
    assert daemon_calls(scan) == len(inside)


def test_mistakes(tmp_path: Path, cvmfs: Path) -> None:
    folder, other = tmp_path, tmp_path / "text"
    other.write_text("nothing that perf wrote\n" * 100)
    for path, why in (
        (tmp_path / "none", "No such file"),
        (folder, "directory"),
        (other, "not a perf.data"),
    ):
        for ask in (
            lambda p: _core.scan(p, REQUESTS, {}),
            lambda p: _core.requests(p, REQUESTS, {}, {}).__arrow_c_stream__(),
            _core.describe,
        ):
            with pytest.raises(_core.CoreError) as caught:
                ask(path)
            what, said = caught.value.args
            assert str(path) in what
            assert why in said
            assert "\n" not in what + said
    for layer, role in (("layer", "entry"), ("daemon", "role")):
        with pytest.raises(ValueError, match="no such"):
            _core.Probe("e", layer, "", "", role)
    with pytest.raises(ValueError, match="no such filter: users"):
        _core.scan(cvmfs, [], {"users": [1]})  # type: ignore[typeddict-unknown-key]
