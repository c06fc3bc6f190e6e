"""The layers of a live recording, compared with the sample file system's own counters."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import script
from recording import printed, recorded
from sample import BUILD, Mounter, SampleMount
from truth import READ

from fusetools import _core

pytestmark = pytest.mark.live
WORKLOAD = BUILD / "workload"


def record(mount: SampleMount, output: Path, fs: str, workload: str) -> Sequence[_core.Fields]:
    """Record the shell's commands. Return the calls found, by the probes' own names."""
    recorded(output, "--mount", mount.path, "--fs", fs, "--", "sh", "-ec", workload)
    events = _core.describe(output)["events"]
    catalogue: list[_core.Probe] = [
        _core.Probe("fuse:fuse_request_send", "request", "", "", "begin"),
        _core.Probe("fuse:fuse_request_sent", "request", "", "", "sent"),
        _core.Probe("fuse:fuse_request_end", "request", "", "", "end"),
        _core.Probe("raw_syscalls:sys_enter", "syscall", "", "", "sys_enter"),
        _core.Probe("raw_syscalls:sys_exit", "syscall", "", "", "sys_exit"),
    ]
    for event in events:
        name = event.partition(":")[2]
        if "fuse_reply_" in name:
            catalogue.append(_core.Probe(event, "daemon", name, "", "reply"))
    scan = _core.scan(output, catalogue, {"daemons": [(mount.pid, mount.connection)]})
    assert scan["lost"] == 0
    assert scan["requests"]["matched"] >= 0.999 * scan["requests"]["begun"]
    return scan["series"]


def test_replies_of_a_daemon_without_symbols(sample_mount: Mounter, tmp_path: Path) -> None:
    """Each callback of a stripped daemon is recognized by its reply, with 8 processes at work."""
    mount = sample_mount(stripped=True)
    workload = mount.build.parent / "workload"
    before = mount.affairs()
    forget = f"mount -i -o remount,ro {mount.path}; {mount.until_forgotten()}"
    commands = f"{workload} mixed --few {mount.path}; {forget}"
    series = record(mount, tmp_path / "perf.data", "libfuse", commands)
    after = mount.affairs()

    found: Counter[str] = Counter()
    for one in series:
        if one["layer"] == "daemon":
            assert one["count"] == one["entries"], one
            found[one["operation"]] += one["count"]
    own = {name.removeprefix("cvmfs_"): after[name].total - before[name].total for name in after}
    own["forget"] += own.pop("forget_multi")
    found.pop("flush", None)  # libfuse answers it itself
    assert own["lookup"] > 1000
    assert own["forget"] > 0
    assert found == Counter({name: n for name, n in own.items() if n})


def test_a_delay_shows_in_every_layer(sample_mount: Mounter, tmp_path: Path) -> None:
    """Each call lies between read and reply as stock perf shows them.

    It contains the delay of that request by the daemon's own clock, and lies in the system call.
    """
    mount = sample_mount(stripped=True, delay=("lookup=200us",))
    workload = mount.build.parent / "workload"
    commands = f"{workload} stat 211 {mount.path}/dir-00/file-000"
    data, before = tmp_path / "perf.data", len(mount.calls())
    series = record(mount, data, "libfuse", commands)
    found = {(s["layer"], s["operation"]): s for s in series}
    reply, request = found["daemon", "lookup"], found["request", "lookup"]
    whole = found["syscall", "lookup"]
    assert (reply["count"], request["count"], whole["count"]) == (422, 422, 211)
    answered = reads_to_replies(data, mount)
    spans: dict[str, list[int]] = {"lookup": [], "getattr": []}
    for call in mount.calls()[before:]:
        if call.operation in spans:
            read, replied = answered[call.unique]
            spans[call.operation].append(replied - read)
            moments = [read, call.entered, replied]
            assert bool(call.delay_end) == (call.operation == "lookup")
            if call.delay_end:
                moments[2:2] = [call.delay_begin, call.delay_begin + 200_000, call.delay_end]
            assert sorted(moments) == moments, call
    for operation, count in (("lookup", 422), ("getattr", 211)):
        ns, shown = spans[operation], found["daemon", operation]
        assert (len(ns), shown["count"], shown["total_ns"]) == (count, count, sum(ns))
        assert (shown["min_ns"], shown["max_ns"]) == (min(ns), max(ns))
    # Each reply lies in its request, and its request in the system call.
    for name in ("50", "90", "99"):
        assert reply["percentiles_ns"][name] < request["percentiles_ns"][name]
    assert reply["total_ns"] < request["total_ns"] < whole["total_ns"]


def reads_to_replies(data: Path, mount: SampleMount) -> dict[int, tuple[int, int]]:
    """Stock perf: by request, when a daemon's thread had read it, and when it first replied."""
    read: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for event in script.events(data):
        if event.pid != mount.pid:
            continue
        if event.name == "raw_syscalls:sys_exit" and event.number("NR") in READ:
            read[event.tid] = event.time
        elif "fuse_reply_" in event.name and event.tid in read:
            found.setdefault(event.number("unique"), (read[event.tid], event.time))
    return found


def test_recorders_get_a_cpu_before_others(sample_mount: Mounter, tmp_path: Path) -> None:
    """Else their buffers overflow on a busy machine while they wait for one."""
    classes = tmp_path / "classes"
    look = f"ps -o pid=,cls= --ppid $PPID >{classes}; echo $$ TS >>{classes}"
    recorded(tmp_path / "perf.data", "--mount", sample_mount().path, "--", "sh", "-c", look)
    *children, workload = (line.split() for line in classes.read_text().splitlines())
    assert workload in children
    # perf of the host, perf of the daemon's tasks, and the process that drains ftrace's buffers
    assert [of for pid, of in children if pid != workload[0]] == ["RR"] * 3


def test_events_of_a_quiet_cpu_arrive_in_time(sample_mount: Mounter, tmp_path: Path) -> None:
    """perf writes what a quiet CPU recorded last.

    That may be the start of a process whose own events are lost in another CPU's full buffer. All
    of them belong to the workload.
    """
    busy, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("one of two CPUs shall be quiet")
    mount = sample_mount()
    for thread in os.listdir(f"/proc/{mount.pid}/task"):
        os.sched_setaffinity(int(thread), [busy])
    begin = f"taskset -c {busy} {WORKLOAD} statfs 4999 {mount.path}"
    script = f"for i in 1 2 3 4 5 6 7; do {begin}; done"
    workload = ["taskset", "-c", others[-1], "sh", "-ec", script]
    output = tmp_path / "perf.data"
    done = recorded(output, "--mount", mount.path, "--", *workload)
    assert "out of time order" not in done.stderr
    (calls,) = (
        found["count"]
        for found in json.loads(printed("hist", "-i", output, "--json"))["histograms"]
        if (found["layer"], found["operation"]) == ("syscall", "statfs")
    )
    assert calls == 7 * 4999
