"""The perf of each suite reads a recording that was written for it. No guest is needed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import vm
from samplefs import FUSETOOLS

DEMO = Path(__file__).parents[2] / "samples" / "recordings" / "demo.data"
pytestmark = pytest.mark.vm


def test_a_recording_is_written_for_an_older_perf(
    kernel: vm.Kernel, tools: Path, tmp_path: Path
) -> None:
    del kernel

    def samples(perf: Path | str, recording: Path) -> list[str]:
        command = [str(perf), "script", "--ns", "-F", "tid,pid,cpu,time,event,trace"]
        done = subprocess.run([*command, "-i", recording], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = (" ".join(line.split()) for line in done.stdout.splitlines() if line.strip())
        # Some perfs have libtraceevent's plugins, which print switches in another way.
        return [re.sub(r"(?<= sched:sched_switch: ).*", "", line) for line in lines]

    perf = tools / "perf"
    said = subprocess.run([perf, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.sub(r"perf version ", "", said).strip()
    older = tmp_path / "older.data"
    subprocess.run([FUSETOOLS, "merge", DEMO, "--for-perf", version, "-o", older], check=True)
    found = samples(perf, older)
    assert len(found) > 1000
    assert found == samples("perf", DEMO)
