"""Answers on recordings of the real CernVM-FS client and of four kernels."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Callable

import affairs
import data
import numpy as np
import pytest
from columns import Columns
from fixtures import Invoke
from script import events

import fusetools
from fusetools.answers.filters import Filters
from fusetools.names import LAYERS

CLIENT = "cernvmfs-6.1"
KERNELS = ("5.10.0-46-amd64", "6.1.0-56-amd64", "6.12.117+deb13-amd64", "7.2.13+deb14-amd64")
# Callbacks that the client does not time itself.
UNTIMED = {"cvmfs_statfs", "cvmfs_getxattr", "cvmfs_listxattr"}


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data.unpack(f"{CLIENT}/perf.data.zst", tmp_path_factory.mktemp("client") / "perf.data")


@pytest.fixture(scope="session")
def truth() -> dict[str, int]:
    """Return the client's own counts over the recording."""
    after, before = (
        affairs.parse(data.find(f"{CLIENT}/client-{when}.txt").read_text())
        for when in ("after", "before")
    )
    counts = {name: after[name].minus(before[name]).total for name in after}
    assert len(counts) == 11 and counts["cvmfs_lookup"] == 1832
    return counts


def test_counts_are_the_clients_own(client: Path, truth: dict[str, int]) -> None:
    counts = fusetools.open(client).counts("^cvmfs_").counts
    assert {c.function: c.count for c in counts if c.function not in UNTIMED} == truth


def test_histograms_hold_every_call(client: Path, truth: dict[str, int]) -> None:
    for h in fusetools.open(client).hist("cvmfs_*").histograms:
        assert h.unmatched == 0
        assert sum(n for _, _, n in h.buckets) == h.count
        if h.function not in UNTIMED:
            assert h.count == truth[h.function]


def test_the_clients_form_reads_back(client: Path, truth: dict[str, int], run: Invoke) -> None:
    printed = affairs.parse(run("hist", "-i", str(client), "--style", "cvmfs").stdout)
    assert {name: printed[name].total for name in truth} == truth
    for h in json.loads(run("hist", "-i", str(client), "--layer", "daemon", "--json").stdout)[
        "histograms"
    ]:
        assert [n for n in printed[h["function"]].bins if n] == [
            b["calls"] for b in h["buckets"] if b["calls"]
        ]


def test_our_form_is_the_clients_byte_for_byte(run: Invoke) -> None:
    from fusetools.render.text import cvmfs

    text = data.find(f"{CLIENT}/client-after.txt").read_text()
    body = text.split("Latency distribution of system calls:\n")[1].split("\nRaw Counters:")[0]
    for name, callback in list(affairs.CALLBACKS.items())[:11]:
        theirs = re.search(rf"^{name}\n(.*?\n-----------------------\n)", body, re.M | re.S)
        assert theirs
        h = affairs.parse(text)[callback]
        assert cvmfs.distribution(list(h.bins), h.overflow) == theirs[1]


def test_every_request_is_matched(client: Path) -> None:
    r = fusetools.open(client).counts().facts.requests
    assert (r.begun, r.ended, r.matched) == (5525, 5525, 5525)


def pairs_of_perf_script(path: Path) -> dict[str, list[tuple[int, int, int]]]:
    """Return (start, duration, tid) of each call, by pairing the lines of stock perf script."""
    entered: dict[tuple[int, str], list[int]] = defaultdict(list)
    calls: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for event in events(path):
        group, _, name = event.name.partition(":")
        if group not in ("fuse_daemon", "fuse_kernel"):
            continue
        function, returns, _ = name.partition("__return")
        if not returns:
            entered[event.tid, function].append(event.time)
        elif entered[event.tid, function]:
            start = entered[event.tid, function].pop()
            calls[function].append((start, event.time - start, event.tid))
    return calls


def test_calls_are_perf_scripts(client: Path) -> None:
    recording = fusetools.open(client)
    calls = Columns(recording.calls("cvmfs_*", "request_wait_answer"))
    theirs = pairs_of_perf_script(client)
    assert len(theirs["cvmfs_lookup"]) == 1832 and len(theirs["request_wait_answer"]) == 5410
    for function, expected in theirs.items():
        mine = calls.of(function)
        rows = zip(calls.begin_ns[mine], calls.duration_ns[mine], calls.tid[mine])
        assert sorted(tuple(map(int, row)) for row in rows) == sorted(expected)
    for h in recording.hist("cvmfs_*").histograms:
        durations = sorted(ns for _, ns, _ in theirs[h.function])
        if not durations:
            continue
        assert (h.count, h.min_ns, h.max_ns) == (len(durations), durations[0], durations[-1])
        assert h.mean_ns == pytest.approx(sum(durations) / len(durations))
        for name, ns in h.percentiles_ns.items():
            rank = -(-len(durations) * int(float(name) * 10) // 1000)
            assert durations[rank - 1] <= ns <= durations[rank - 1] * (1 + 1 / 2048)
        buckets: defaultdict[int, int] = defaultdict(int)
        for ns in durations:
            buckets[max(ns.bit_length() - 1, 0)] += 1
        assert {low.bit_length() - 1: n for low, _, n in h.buckets if n} == buckets


def test_columns_are_the_histograms(client: Path) -> None:
    recording = fusetools.open(client)
    requests = Columns(recording.requests())
    done = requests.end_ns > 0
    times = (requests.end_ns - requests.begin_ns)[done]
    found = [h for h in recording.hist(layers=["request"]).histograms if h.count]
    assert len(times) == sum(h.count for h in found) == 5525
    assert times.sum() == pytest.approx(sum(h.mean_ns * h.count for h in found if h.mean_ns))
    # Every request of the client except FLUSH has a callback.¶The callback runs inside the request
    # or past its end, never before its begin.
    seen = requests.callback_enter_ns > 0
    assert (len(seen) - seen.sum(), set(requests.opcode[~seen])) == (1, {25})
    assert (requests.callback_enter_ns[seen] > requests.begin_ns[seen]).all()
    assert (requests.callback_return_ns[seen] > requests.callback_enter_ns[seen]).all()


def test_a_time_span_splits_the_calls(client: Path) -> None:
    recording = fusetools.open(client)
    everything = recording.counts("^cvmfs_lookup$")
    middle = int(everything.facts.seconds / 2 * 1e9)
    parts = [
        recording.hist("cvmfs_lookup", filters=filters).histograms[0].count
        for filters in (Filters(end_ns=middle), Filters(start_ns=middle))
    ]
    assert sum(parts) == 1832 and min(parts) > 0


def test_a_comm_is_the_callers(client: Path) -> None:
    recording = fusetools.open(client)
    requests = Columns(recording.requests())
    by_comm = {
        comm: recording.counts("^cvmfs_lookup$", filters=Filters(comms=(comm,))).counts[0].count
        for comm in ("find", "ls", "no-such-comm")
    }
    assert by_comm["find"] > 0 and by_comm["ls"] > 0 and by_comm["no-such-comm"] == 0
    pids = {int(pid) for pid in np.unique(requests.pid)}
    by_pid = [
        recording.counts("^cvmfs_lookup$", filters=Filters(pids=(pid,))).counts[0].count
        for pid in pids
    ]
    assert sum(by_pid) == 1832


@pytest.mark.parametrize("kernel", KERNELS)
def test_four_kernels(kernel: str, tmp_path: Path, run: Invoke) -> None:
    path = data.unpack(f"kernels/{kernel}/recording/perf.data.zst", tmp_path / "perf.data")
    found = fusetools.open(path).counts()
    assert found.facts.requests.begun == 31
    by_name = {(c.layer, c.function, c.operation): c.count for c in found.counts}
    assert by_name["daemon", "cvmfs_lookup", "lookup"] == 11
    assert by_name["request", "FUSE_GETATTR", "getattr"] == 12
    assert by_name["syscall", "newfstatat", "lookup"] == 10
    # On 6.12, too, whose fuse:fuse_request_send reports 0 for every request: by kprobes.
    assert found.facts.requests.matched == found.facts.requests.ended == 31
    assert not found.facts.losses.warnings
    result = run("hist", "-i", str(path), "lookup")
    assert result.exit_code == 0
    assert {line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")} >= {
        *LAYERS
    }


def test_diff_of_a_recording_with_itself(client: Path, run: Invoke, tmp_path: Path) -> None:
    found = json.loads(run("diff", str(client), str(client), "--json").stdout)["differences"]
    assert found and all(d["change"] == 0 for d in found)
    assert all(not d["p50_change_ns"] for d in found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b"no recording at all\n" * 50,
        lambda b: b[:8],
        lambda b: b[:104],
        lambda b: b[: len(b) // 2],
        lambda b: b"ELF" + b[3:],
        lambda b: bytes(len(b)),
    ],
)
def test_damaged_files_give_figures_or_an_error(
    client: Path, damage: Callable[[bytes], bytes], tmp_path: Path, run: Invoke
) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(damage(client.read_bytes()))
    for command in ("hist", "count"):
        result = run(command, "-i", str(path))
        assert result.exit_code in (0, 1)
        if result.exit_code:
            assert re.match(r"fusetools: .+\n  why: .+\n  fix: .+\n$", result.stderr)
        else:
            assert "warning: " in result.stdout
