"""hist, count and diff of live recordings, compared with the sample file system's own figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import affairs
import program32
import pytest
from columns import Columns
from recording import opened, printed
from sample import BUILD, Mounter, SampleMount

from fusetools.answers.filters import Filters

pytestmark = pytest.mark.live
WORKLOAD = BUILD / "workload"


def own(mount: SampleMount, before: dict[str, affairs.Histogram]) -> dict[str, affairs.Histogram]:
    """Return the daemon's own calls since then, without operations that it did not do."""
    after = mount.affairs()
    return {name: h for name in after if (h := after[name].minus(before[name])).total}


def test_the_answers_are_the_file_systems_own(sample_mount: Mounter, tmp_path: Path) -> None:
    """With 8 processes at work: every callback, request and system call, and the histograms."""
    mount = sample_mount()
    before = mount.affairs()
    recording = opened(tmp_path / "perf.data", [mount], WORKLOAD, "mixed", mount.path)
    truth = own(mount, before)
    assert len(truth) >= 12

    counts = recording.counts()
    by_layer: dict[tuple[str, str], int] = {}
    for c in counts.counts:
        if c.count:
            key = (c.layer, c.function if c.layer != "syscall" else c.operation)
            by_layer[key] = by_layer.get(key, 0) + c.count
    daemon = {function: n for (layer, function), n in by_layer.items() if layer == "daemon"}
    assert daemon == {name: h.total for name, h in truth.items()}
    for name, h in truth.items():
        if "forget" not in name:
            constant = name.replace("cvmfs", "FUSE").upper()
            assert by_layer["request", constant] == h.total

    # The workload makes prime numbers of system calls.
    for operation, n in (("readlink", 61), ("getxattr", 43), ("listxattr", 37), ("statfs", 17)):
        assert by_layer["syscall", operation] == 8 * n
    assert by_layer["syscall", "getattr"] == 8 * 211
    facts = counts.facts
    assert facts.losses.lost == 0
    assert facts.requests.matched >= 0.999 * facts.requests.begun

    # Each call by the daemon's clock lies in its recorded one.¶For calls without a delay, the
    # probes add about their measured cost. Load makes this difference longer, never shorter, and
    # some calls are not affected.
    cost = facts.probe_cost_ns
    assert cost is not None
    calls = Columns(recording.calls("cvmfs_*"))
    for name, h in truth.items():
        mine = calls.of(name)
        assert len(calls.duration_ns[mine]) == h.total
        columns = (calls.unique, calls.begin_ns, calls.duration_ns)
        recorded = sorted(zip(*(column[mine].tolist() for column in columns)))
        noted = sorted(
            (call.unique, call.entered, call.left)
            for call in mount.calls()[-sum(h.total for h in truth.values()) :]
            if f"cvmfs_{call.operation}" == name
        )
        added = []
        for (unique, start, duration), (own_unique, entered, left) in zip(recorded, noted):
            assert unique == own_unique
            assert start <= entered <= left <= start + duration
            added.append(duration - (left - entered))
        assert 0 < min(added) < 4 * cost

    # The commands print the same.
    shown = affairs.parse(printed("hist", "-i", recording.path, "--style", "cvmfs"))
    assert {name: h.total for name, h in shown.items() if h.total} == daemon
    told = f"{cost / 1000:.2f} us" if cost >= 1000 else f"{cost:.0f} ns"
    assert f"about {told} of probe cost" in printed("hist", "-i", recording.path)


def test_a_delay_is_found(sample_mount: Mounter, tmp_path: Path) -> None:
    """A delay of 200 us on lookup appears as the difference of two recordings, in each layer around
    it.

    Load makes calls longer: without the delay the minimum of 503 calls is short. If 19 of 20 calls
    were lengthened independently, all 503 would be so in 1 of 10^11 runs.
    """
    files = []
    for name, delay in (("fast", ()), ("slow", ("lookup=200us",))):
        mount = sample_mount(delay=delay)
        files.append(tmp_path / f"{name}.data")
        opened(files[-1], [mount], WORKLOAD, "stat", 503, mount.path / "big")
        noted = [call for call in mount.calls() if call.operation == "lookup"]
        mount.clean()
    fast, slow = (
        {
            h["layer"]: h
            for h in json.loads(printed("hist", "lookup", "-i", file, "--json"))["histograms"]
        }
        for file in files
    )
    delays = [call.delay_end - call.delay_begin for call in noted]
    assert min(delays) >= 200_000 and len(delays) == 503
    for layer in ("syscall", "request", "daemon"):
        assert fast[layer]["count"] == slow[layer]["count"] == 503
        assert fast[layer]["min_ns"] < 200_000 < slow[layer]["min_ns"]
        assert slow[layer]["mean_ns"] * 503 > sum(delays)
    # The shortest callback is that by the daemon's own clock.
    own = min(call.left - call.entered for call in noted)
    assert own < slow["daemon"]["min_ns"] < 1.05 * own + fast["daemon"]["min_ns"]
    # A callback continues after its request has ended.
    assert slow["request"]["mean_ns"] < slow["syscall"]["mean_ns"]
    told = json.loads(printed("diff", *files, "--json"))["differences"]
    (d,) = (d for d in told if d["function"] == "cvmfs_lookup")
    assert d["change"] == 0 and d["b"]["percentiles_ns"]["50"] > 200_000


def test_mounts_and_callers_are_told_apart(sample_mount: Mounter, tmp_path: Path) -> None:
    one, other = sample_mount(), sample_mount()
    before = {mount: mount.affairs() for mount in (one, other)}
    script = (
        f"{WORKLOAD} stat 211 {one.path}/big & {WORKLOAD} stat 307 {other.path}/big;"
        f" wait; find {one.path}/dir-00 > /dev/null"
    )
    recording = opened(tmp_path / "perf.data", [one, other], "sh", "-c", script)

    def lookups(**filters: Any) -> dict[str, int]:
        found = recording.counts("lookup", filters=Filters(**filters)).counts
        return {c.layer: c.count for c in found if c.count and c.layer != "syscall"}

    everything = lookups()
    for mount in (one, other):
        n = own(mount, before[mount])["cvmfs_lookup"].total
        assert lookups(mounts=(str(mount.path),)) == {"request": n, "daemon": n}
        everything = {layer: left - n for layer, left in everything.items()}
    assert set(everything.values()) == {0}
    workload, find = lookups(comms=("workload",)), lookups(comms=("find",))
    assert workload == {"request": 518, "daemon": 518}
    assert find["request"] == find["daemon"] > 0
    assert lookups(comms=("nobody",)) == {}


def test_system_calls_of_a_32_bit_program(sample_mount: Mounter, tmp_path: Path) -> None:
    """The kernel's events have its numbers: 3 is close in the machine's own."""
    mount = sample_mount()
    program = program32.program(tmp_path)
    recording = opened(tmp_path / "perf.data", [mount], program, mount.path / "dir-00" / "file-000")
    calls = {(c.function, c.operation): c.count for c in recording.counts().counts if c.count}
    assert calls["read", "read"] == calls["openat", "open"] == 1
