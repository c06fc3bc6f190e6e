"""fusetools overhead on a kernel with function_graph and kprobes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vm
from samplefs import SAMPLES, own_counts
from test_record_in_guest import FUSETOOLS, LEFT, mount

from fusetools.plan.parts import PARTS

pytestmark = pytest.mark.vm


def test_each_part_of_a_recording_is_measured(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """One round each: an emulator's times say nothing, but every part records its events."""
    guest(
        f"""{mount()}
        export PATH={tools}:$PATH
        {FUSETOOLS} overhead --repeat 1 --json -- \\
          {SAMPLES}/workload stat 31 /run/mount/dir-00/file-000 > overhead.json
        {SAMPLES}/with-symbols/samplefs --talk /run/talk internal affairs > counters
        {LEFT}"""
    )
    found = json.loads((tmp_path / "overhead.json").read_text())
    parts = {one["part"]: one["events"] for one in found["parts"]}
    assert list(parts) == [*PARTS, "all"]
    runs = 2 + len(parts)  # to warm up, without, with each
    calls = own_counts((tmp_path / "counters").read_text())
    assert calls["cvmfs_lookup"] == runs * 2 * 31
    assert parts["daemon"] >= 2 * 3 * 31  # both ends of two lookups and a getattr for each stat
    assert parts["kernel"] > parts["daemon"]  # function_graph's events are among them
    assert parts["all"] > parts["kernel"] + parts["daemon"]
    assert found["probe_cost_ns"] > 0 and found["lost"] == 0
    assert (tmp_path / "left").read_text() == ""
