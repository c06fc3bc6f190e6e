"""fusetools record, count and hist on each kernel, with its suite's perf and trace-cmd."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
import vm
from samplefs import (
    FUSETOOLS,
    LEFT,
    OWN,
    SAMPLES,
    TRACING,
    counts,
    mount,
    own,
    until_recording,
)

from fusetools.names import DETAILS

pytestmark = pytest.mark.vm


@pytest.mark.usefixtures("campaign")
def test_shared_probes_stay_while_somebody_records_them(
    guest: vm.Guest, tools: Path, tmp_path: Path
) -> None:
    """The kernel frees the probes of one event even while ftrace or perf records it: the daemon
    would run into freed memory."""
    guest(
        f"""set -e
        {mount()}
        export PATH={tools}:$PATH
        {FUSETOOLS} record -- sleep 1000 2> said &
        {until_recording()}
        mkdir {TRACING}/instances/another
        echo 1 > {TRACING}/instances/another/events/fuse_daemon/enable
        kill -TERM $!
        wait $! || true
        {SAMPLES}/workload stat 200 /run/mount/dir-00/file-000 > workload.json
        {FUSETOOLS} clean > cleaned 2>&1 || true
        cat {TRACING}/uprobe_events > before
        {SAMPLES}/workload stat 200 /run/mount/dir-00/file-000 > workload.json
        rmdir {TRACING}/instances/another
        {FUSETOOLS} clean > after 2>&1
        {SAMPLES}/workload stat 200 /run/mount/dir-00/file-000 > workload.json
        dmesg > dmesg
        {LEFT}"""
    )
    said = (tmp_path / "said").read_text()
    if "bundle_1" not in (tmp_path / "before").read_text():
        pytest.skip("this kernel has an event for each probe: it refuses to remove one in use")
    assert "in use by" in said
    assert "(in use)" in (tmp_path / "cleaned").read_text()
    complaints = (tmp_path / "dmesg").read_text()
    assert "general protection" not in complaints and "BUG:" not in complaints, complaints
    assert (tmp_path / "left").read_text() == ""


def test_recordings_of_a_stripped_daemon_on_a_host_without_cgroups(
    guest: vm.Guest, tools: Path, tmp_path: Path, all_kernels: bool
) -> None:
    """They go through an ftrace instance, and are complete; it is removed afterwards."""
    # On one kernel test_kernel_in_guest.py makes the one with stacks.
    details = DETAILS if all_kernels else DETAILS[:1]
    # The daemon's table, which its library exports, names the callbacks.
    script = f"""set -e
        {mount(build="stripped")}
        export PATH={tools}:$PATH
        umount /sys/fs/cgroup
        {OWN}
        {FUSETOOLS} record --backend kprobe --dry-run -- true > plan"""
    for detail in details:
        record = f"{FUSETOOLS} record --backend kprobe --detail {detail} -o {detail}.data"
        script += f"""
        own {detail}.before
        {record} -- {SAMPLES}/workload mixed --processes 2 --few /run/mount \
          > workload.json 2> {detail}.said
        own {detail}.after"""
    # As it was: the guest stays.
    guest(
        f"{script}\nmount -t cgroup2 cgroup /sys/fs/cgroup\n{LEFT}\nls {TRACING}/instances >> left"
    )
    assert (tmp_path / "left").read_text() == ""
    plan = (tmp_path / "plan").read_text()
    assert "by ftrace" in plan and "cvmfs_lookup" in plan and "is stripped" not in plan
    for detail in details:
        # The workload is recognized by its threads' numbers.
        said = (tmp_path / f"{detail}.said").read_text()
        assert "no cgroup can be made" not in said
        called = own(tmp_path, detail)
        data = tmp_path / f"{detail}.data"
        assert +counts(data, "daemon") == +called, said
        events = script_events(tools, data)
        for name, count in called.items():
            assert (events[f"fuse_daemon:{name}"], events[f"fuse_daemon:{name}__return"]) == (
                count,
                count,
            )
        assert bool(events["sched:sched_switch"]) == (detail != "latency")


def script_events(tools: Path, recording: Path) -> Counter[str]:
    """Return the samples of each event, as stock perf counts them."""
    script = subprocess.run(
        [tools / "perf", "script", "-i", recording, "-F", "event"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Counter(line.strip().removesuffix(":") for line in script.stdout.splitlines())
