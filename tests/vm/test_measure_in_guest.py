"""overhead and sweep on a kernel with function_graph and kprobes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vm
from samplefs import SAMPLES, own_counts
from test_record_in_guest import FUSETOOLS, LEFT, mount

pytestmark = pytest.mark.vm


def test_each_part_of_a_recording_is_measured(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """One round each: an emulator's times say nothing, but every part records its events."""
    guest(
        f"""{mount()}
        export PATH={tools}:$PATH
        {FUSETOOLS} overhead --repeat 1 --json -- \\
          {SAMPLES}/workload stat 31 /run/mount/dir-00/file-000 > overhead.json
        {SAMPLES}/with-symbols/samplefs --talk /run/talk internal affairs > before
        {FUSETOOLS} sweep --caches keep --repeat 1 --param n=11,31 --json -- \\
          {SAMPLES}/workload stat {{n}} /run/mount/dir-00/file-000 > sweep.json
        {SAMPLES}/with-symbols/samplefs --talk /run/talk internal affairs > after
        {LEFT}"""
    )
    found = json.loads((tmp_path / "overhead.json").read_text())
    parts = {one["part"]: one["events"] for one in found["parts"]}
    assert list(parts) == ["syscall", "kernel", "request", "daemon", "off-CPU", "all"]
    assert parts["daemon"] >= 2 * 3 * 31  # both ends of two lookups and a getattr for each stat
    assert parts["kernel"] > parts["daemon"]  # function_graph's events are among them
    assert 0.5 * parts["all"] < sum(parts.values()) - parts["all"] < 2 * parts["all"]
    assert found["probe_cost_ns"] > 0 and found["lost"] == 0

    calls = own_counts((tmp_path / "after").read_text())
    calls.subtract(own_counts((tmp_path / "before").read_text()))
    points = json.loads((tmp_path / "sweep.json").read_text())["points"]
    lookups = [one["requests"]["lookup"]["count"]["median"] for one in points]
    assert lookups == [2 * 11, 2 * 31]
    assert calls["cvmfs_lookup"] == sum(lookups)
    assert (tmp_path / "left").read_text() == ""
