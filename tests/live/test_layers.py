"""The layers of a live recording against the sample file system's own counters."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from recording import recorded
from sample import Mounter, SampleMount

from fusetools import _core

pytestmark = pytest.mark.live


def record(mount: SampleMount, output: Path, fs: str, workload: str) -> list[_core.Series]:
    """Records the shell's commands; what was found, by the probes' own names."""
    recorded(output, "--mount", mount.path, "--fs", fs, "--", "sh", "-ec", workload)
    events = _core.describe(output)["events"]
    catalogue: list[_core.Row] = [
        ("fuse:fuse_request_send", "request", "", "", "begin"),
        ("fuse:fuse_request_sent", "request", "", "", "sent"),
        ("fuse:fuse_request_end", "request", "", "", "end"),
        ("raw_syscalls:sys_enter", "syscall", "", "", "sys_enter"),
        ("raw_syscalls:sys_exit", "syscall", "", "", "sys_exit"),
    ]
    for event in events:
        name = event.partition(":")[2]
        if "fuse_reply_" in name:
            catalogue.append((event, "daemon", name, "", "reply"))
    scan = _core.scan(output, catalogue, {"daemons": [(mount.pid, mount.connection)]})
    assert scan["lost"] == 0
    assert scan["requests"]["matched"] >= 0.999 * scan["requests"]["begun"]
    return scan["series"]


def test_replies_of_a_daemon_without_symbols(sample_mount: Mounter, tmp_path: Path) -> None:
    """Each callback of a stripped daemon is told by its reply, with 8 processes at work."""
    mount = sample_mount(stripped=True)
    workload = mount.build.parent / "workload"
    before = mount.affairs()
    forget = f"mount -i -o remount,ro {mount.path}; {mount.until_forgotten()}"
    commands = f"{workload} mixed {mount.path}; {forget}"
    series = record(mount, tmp_path / "perf.data", "libfuse", commands)
    after = mount.affairs()

    found: Counter[str] = Counter()
    for one in series:
        if one["layer"] == "daemon":
            assert one["count"] == one["entries"], one
            found[one["operation"]] += one["count"]
    own = {name.removeprefix("cvmfs_"): after[name].total - before[name].total for name in after}
    own["forget"] += own.pop("forget_multi")
    found.pop("flush", None)  # answered by libfuse itself
    assert own["lookup"] > 5000
    assert own["forget"] > 0
    assert found == Counter({name: n for name, n in own.items() if n})


def test_a_delay_shows_in_every_layer(sample_mount: Mounter, tmp_path: Path) -> None:
    """From the read to the reply it is the daemon's own delay, and what a call without one takes.

    Load makes single ones longer: it is the shortest of 422, beside 90 of 100 of the calls that
    the same processes answered without a delay.
    """
    mount = sample_mount(stripped=True, delay=("lookup=200us",))
    workload = mount.build.parent / "workload"
    commands = f"{workload} stat 211 {mount.path}/dir-00/file-000"
    series = record(mount, tmp_path / "perf.data", "libfuse", commands)
    found = {(s["layer"], s["operation"]): s for s in series}
    reply, request = found["daemon", "lookup"], found["request", "lookup"]
    whole = found["syscall", "lookup"]
    assert (reply["count"], request["count"], whole["count"]) == (422, 422, 211)
    lookups = [call for call in mount.calls() if call.operation == "lookup"]
    own = [call.delay_end - call.delay_begin for call in lookups]
    low, without = reply["min"], found["daemon", "getattr"]
    assert without["count"] == 211 and without["percentiles"]["90"] < 200_000
    assert low is not None and min(own) <= low <= min(own) + without["percentiles"]["90"]
    # Each reply lies in its request, and its request in the system call.
    for name in ("50", "90", "99"):
        assert reply["percentiles"][name] < request["percentiles"][name]
    assert sum(own) < reply["sum"] < request["sum"] < whole["sum"]


def test_recorders_get_a_cpu_before_others(sample_mount: Mounter, tmp_path: Path) -> None:
    """Else their buffers fill on a busy machine while they wait for one."""
    classes = tmp_path / "classes"
    look = f"ps -o pid=,cls= --ppid $PPID >{classes}; echo $$ TS >>{classes}"
    recorded(tmp_path / "perf.data", "--mount", sample_mount().path, "--", "sh", "-c", look)
    *children, workload = (line.split() for line in classes.read_text().splitlines())
    assert workload in children
    # perf, and who empties ftrace's buffers
    assert [of for pid, of in children if pid != workload[0]] == ["RR", "RR"]
