"""fusetools overhead on a kernel with function_graph and kprobes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import vm
from samplefs import LEFT, SAMPLES, mount, own_counts

pytestmark = pytest.mark.vm


# All parts would take minutes in an emulator.
MEASURE = """
from fusetools.experiments.overhead import overhead
from fusetools.plan.options import Options, Workload
from fusetools.render.json.answer import render as to_json

command = ("{samples}/workload", "stat", "31", "/run/mount/dir-00/file-000")
log = open("log", "w+b")
options = Options(Workload(command, log.fileno()))
print(to_json("overhead", overhead(options, 1, [], lambda *_: None, ("kernel", "daemon"))))
"""


# On one kernel tests/live/test_overhead_live.py measures everything that this test does.
@pytest.mark.usefixtures("campaign")
def test_parts_of_a_recording_are_measured(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """An emulator's times mean nothing; but each part records its own events, and leaves
    nothing."""
    (tmp_path / "measure.py").write_text(MEASURE.format(samples=SAMPLES))
    guest(
        f"""set -e
        {mount()}
        export PATH={tools}:$PATH
        {sys.executable} measure.py > overhead.json
        {SAMPLES}/with-symbols/samplefs --talk /run/talk internal affairs > counters
        {LEFT}"""
    )
    found = json.loads((tmp_path / "overhead.json").read_text())
    parts = {one["part"]: one["events"] for one in found["costs"]}
    calls = own_counts((tmp_path / "counters").read_text())
    # Four runs: warm-up, without recording, with each of the two. A stat is two lookups and a
    # getattr.
    assert calls["cvmfs_lookup"] == 4 * 2 * 31
    assert parts["daemon"] >= 2 * 3 * 31  # both ends of each callback
    assert parts["kernel"] > parts["daemon"]  # function_graph's events are among them
    assert found["inside_ns"] > 0 and found["lost"] == 0
    assert (tmp_path / "left").read_text() == ""
