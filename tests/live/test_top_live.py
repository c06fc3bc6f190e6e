"""`fusetools top` and `trace` on this host, beside stock perf and the daemon's own calls."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from leftovers import processes
from mounts import wait_until
from recording import COMMAND
from sample import Mounter, SampleMount
from schemas import held

from fusetools.host.files import Files
from fusetools.host.processes import read_stat

pytestmark = pytest.mark.live

TRACEFS = Path("/sys/kernel/tracing")
HOST = Files(Path("/"))
EVENTS = ("fuse:fuse_request_send", "fuse:fuse_request_end")


def fusetools(*arguments: object) -> list[str]:
    return [*COMMAND, *map(str, arguments)]


def nothing_is_left(mount: SampleMount) -> None:
    assert str(mount.library) not in (TRACEFS / "uprobe_events").read_text()


def stock_perf(output: Path, mount: SampleMount) -> subprocess.Popen[bytes]:
    argv = ["perf", "record", "-a", "-q", "-o", str(output), "-k", "CLOCK_MONOTONIC", "-m", "8M"]
    for event in EVENTS:
        argv += ["-e", event, "--filter", f"connection == {mount.connection}"]
    perf = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    # A process that began in the same clock tick as top, or later, may record its probes, which
    # then stay.
    began = read_stat(HOST, perf.pid)
    assert began
    wait_until(lambda: perf.poll() is not None or ticks() > began.start, "the next clock tick")
    return perf


def ticks() -> int:
    """Return ticks of the clock by which the kernel reports a process's begin."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def printed(recording: Path) -> dict[str, list[tuple[int, int]]]:
    """Return (end, duration) of requests by operation, as stock perf prints their events."""
    text = subprocess.run(
        ["perf", "script", "-i", str(recording), "--ns", "-F", "time,event,trace"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    begun: dict[str, tuple[int, str]] = {}
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in text.splitlines():
        at, event, rest = line.split(None, 2)
        seconds, _, ns = at.rstrip(":").partition(".")
        when = int(seconds) * 10**9 + int(ns)
        unique = re.search(r"\breq (\d+)", rest)
        assert unique, line
        if event.startswith(EVENTS[0]):
            operation = re.search(r"\((FUSE_\w+)\)", rest)
            assert operation, line
            begun[unique[1]] = (when, operation[1][len("FUSE_") :].lower())
        elif unique[1] in begun:
            start, operation_ = begun.pop(unique[1])
            found[operation_].append((when, when - start))
    return found


def nearest_rank(values: list[int], percent: int, further: int) -> int:
    """Return the percentile, or the value `further` ranks behind it."""
    rank = math.ceil(len(values) * percent / 100) + further
    return sorted(values)[min(max(rank, 1), len(values)) - 1]


def test_rates_and_percentiles_are_those_of_stock_perf(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    mount = sample_mount(delay=("lookup=300us", "getattr=2ms:10%"))
    stock = stock_perf(tmp_path / "stock.data", mount)
    load = mount.busy()
    try:
        done = subprocess.run(
            fusetools("top", "--mount", mount.path, "--once", "--json", "--interval", 3),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        os.killpg(load.pid, signal.SIGKILL)
        load.wait()
        stock.send_signal(signal.SIGINT)
        stock.wait()
    top = held("top", done.stdout)
    assert top["lost"] == top["left_out"] == 0
    rows = {row["label"]: row for row in top["rows"]}
    expected = printed(tmp_path / "stock.data")
    compared = 0
    for operation, ended in expected.items():
        durations = [ns for end, ns in ended if top["start_ns"] < end <= top["end_ns"]]
        if len(durations) < 300:
            continue
        row = rows[operation]
        compared += 1
        # Both use the same two times, read from the clock separately. So a request at an edge may
        # be in one alone, and lasts longer for a tool that lost its CPU between its readings. Each
        # such request moves a rank by one.
        assert row["requests"] == pytest.approx(len(durations), rel=0.02, abs=2)
        few = 5 + abs(row["requests"] - len(durations))
        for name, percent in (("p50_ns", 50), ("p99_ns", 99)):
            low, high = (nearest_rank(durations, percent, places) for places in (-few, few))
            assert low * 0.98 - 3000 <= row[name] <= high * 1.02 + 3000
        mean, longest = sum(durations) / len(durations), max(durations)
        near = 3000 + few * longest / len(durations)
        assert row["exec_ns"] == pytest.approx(mean, rel=0.02, abs=near)
        assert row["queue_ns"] + row["rtt_ns"] == pytest.approx(row["exec_ns"])
    assert compared >= 2
    # There is one caller at a time, which waits as long as its requests take in that time.
    waited = sum(
        max(end - max(end - ns, top["start_ns"]), 0) - max(end - top["end_ns"], 0)
        for ended in expected.values()
        for end, ns in ended
        if top["start_ns"] < end and end - ns < top["end_ns"]
    )
    longest = max(ns for ended in expected.values() for _, ns in ended)
    shown = sum(row["waited_seconds"] for row in rows.values())
    assert 0 < shown <= top["seconds"]
    assert shown == pytest.approx(waited / 1e9, rel=0.02, abs=2 * longest / 1e9 + 0.01)
    nothing_is_left(mount)


def test_a_request_under_way_has_its_age_and_its_path(sample_mount: Mounter) -> None:
    mount = sample_mount(delay=("open=60s",))
    top = subprocess.Popen(
        fusetools("top", "--mount", mount.path, "--json", "--interval", "0.5", "--by", "file"),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert top.stdout is not None
    json.loads(top.stdout.readline())  # it watches
    cat = subprocess.Popen(["cat", mount.path / "dir-00" / "file-001"])
    begun = time.monotonic()
    try:
        while not (shown := held("top", top.stdout.readline()))["oldest"]:
            assert time.monotonic() - begun < 60
        age = time.monotonic() - begun
        (oldest,) = shown["oldest"]
        assert (oldest["operation"], oldest["pid"], oldest["comm"]) == ("open", cat.pid, "cat")
        assert oldest["path"] == str(mount.path / "dir-00" / "file-001")
        assert 1.0 <= oldest["age_ns"] / 1e9 <= age
        assert oldest["thread"] in {int(t.name) for t in Path(f"/proc/{mount.pid}/task").iterdir()}
    finally:
        cat.kill()
        top.send_signal(signal.SIGINT)
        top.communicate()
        mount.process.kill()
        cat.wait()
    assert top.returncode == 0


def test_a_mount_that_hung_before_it_was_started(sample_mount: Mounter) -> None:
    """Its request is in flight without events; it ends with its caller."""
    mount = sample_mount(delay=("open=60s",))
    with subprocess.Popen(["cat", mount.path / "dir-00" / "file-001"]) as cat:
        stack = Path(f"/proc/{cat.pid}/stack")
        wait_until(lambda: "fuse_" in stack.read_text(), "the request")
        try:
            done = subprocess.run(
                fusetools("top", "--mount", mount.path, "--json", "--once"),
                capture_output=True, check=True, text=True,
            )  # fmt: skip
            shown = held("top", done.stdout)
            assert (shown["under_way"], shown["before"]) == (0, 1)
        finally:
            mount.process.kill()
            cat.kill()


def began_since(pid: int, start: int) -> bool:
    process = read_stat(HOST, pid)
    return process is not None and process.start >= start


def test_killed_it_leaves_what_clean_removes(sample_mount: Mounter) -> None:
    mount = sample_mount()
    top = subprocess.Popen(
        fusetools("top", "--mount", mount.path, "--json"), stdout=subprocess.PIPE
    )
    assert top.stdout is not None and top.stdout.readline()
    began = read_stat(HOST, top.pid)
    assert began
    (perf,) = (pid for pid in processes(["perf\0record"]) if began_since(pid, began.start))
    assert str(mount.library) in (TRACEFS / "uprobe_events").read_text()
    top.kill()
    top.communicate()
    wait_until(lambda: not Path(f"/proc/{perf}/fd/0").exists(), "the end of perf")
    subprocess.run(fusetools("clean"), check=True, stdout=subprocess.DEVNULL)
    nothing_is_left(mount)


def test_trace_prints_the_daemon_s_own_calls(sample_mount: Mounter) -> None:
    mount = sample_mount(error=("open=EIO:50%",))
    mount.ask("calls")
    trace = subprocess.Popen(
        fusetools("trace", "--mount", mount.path, "--json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert trace.stdout is not None
    path = mount.path / "dir-01" / "file-000"
    seen: list[dict[str, Any]] = []
    # It watches as soon as it prints anything.
    os.set_blocking(trace.stdout.fileno(), False)

    def first() -> bool:
        with_retry = subprocess.run(["stat", path], stdout=subprocess.DEVNULL, check=True)
        return with_retry.returncode == 0 and bool(trace.stdout and trace.stdout.readline())

    wait_until(first, "the first line of trace")
    os.set_blocking(trace.stdout.fileno(), True)
    before = {(c.operation, c.unique) for c in mount.calls()}
    for _ in range(20):
        subprocess.run(
            ["cat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    own = [c for c in mount.calls() if (c.operation, c.unique) not in before]
    wait = time.monotonic() + 1.0
    while time.monotonic() < wait:
        time.sleep(0.05)
    trace.send_signal(signal.SIGINT)
    out, err = trace.communicate()
    assert trace.returncode == 0, err
    seen = [held("trace", line) for line in out.splitlines() if line.startswith("{")]
    by_number = {one["unique"]: one for one in seen}
    expected = [c for c in own if c.operation not in ("forget", "forget_multi", "batch_forget")]
    assert len(expected) > 60
    for call in expected:
        one = by_number[call.unique]
        assert one["operation"] == call.operation
        assert one["begin_ns"] <= call.entered
        assert one["begin_ns"] + (one["queue_ns"] or 0) <= call.entered
    opens = [one for one in seen if one["operation"] == "open" and one["begin_ns"] > 0]
    assert {one["error"] for one in opens} == {"", "EIO"}
    assert {one["path"] for one in opens} == {str(path)}
    assert re.search(r"fusetools: [\d,]+ requests ended, [\d,]+ printed, 0 events lost", err)
    nothing_is_left(mount)


def test_the_screen(sample_mount: Mounter, tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("this host has no tmux")
    mount = sample_mount(delay=("lookup=1ms",))
    tmux = ["tmux", "-S", str(tmp_path / "tmux")]
    command = " ".join(fusetools("top", "--mount", mount.path, "--interval", "0.5"))
    load = mount.busy()

    def screen() -> str:
        done = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True)
        return done.stdout

    def keys(*names: str) -> None:
        subprocess.run([*tmux, "send-keys", *names], check=True)

    try:
        subprocess.run(
            [*tmux, "new-session", "-d", "-x", "120", "-y", "30", f"{command}; echo left $?; cat"],
            check=True,
        )
        wait_until(lambda: "getattr" in screen(), "rows by operation")
        assert "by operation, sorted by requests" in screen()
        keys("b", "s")
        wait_until(lambda: "workload (" in screen(), "rows by process")
        assert "wait*" in screen()
        keys("/", "n", "o", "n", "e", "Enter")
        wait_until(lambda: "workload (" not in screen(), "the filter")
        keys("p")
        wait_until(lambda: "PAUSED" in screen(), "the pause")
        keys("q")
        wait_until(lambda: "left 0" in screen(), "the end")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
        os.killpg(load.pid, signal.SIGKILL)
        load.wait()
    nothing_is_left(mount)


def test_one_line_for_each_interval_where_there_is_no_terminal(sample_mount: Mounter) -> None:
    mount = sample_mount()
    top = subprocess.Popen(
        fusetools("top", "--mount", mount.path, "--interval", "0.3"),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert top.stdout is not None
    lines = [top.stdout.readline() for _ in range(3)]
    top.send_signal(signal.SIGTERM)
    rest, _ = top.communicate()
    assert all(re.match(r"\d\d:\d\d:\d\d 0 op/s, 0 in flight, 0 errors\n", one) for one in lines)
    assert top.returncode == 0 and rest.count("\n") == 1
    nothing_is_left(mount)
