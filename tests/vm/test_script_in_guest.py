"""Recordings by a script where function_graph and kprobes are recorded, too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import vm
from samplefs import FUSETOOLS, OWN, SAMPLES, TRACING, counts, mount, own

pytestmark = pytest.mark.vm


START = f"""set -e
{mount()}
{OWN}
ftrace() {{
  cd {TRACING}
  grep -H . current_tracer trace_clock tracing_on set_ftrace_filter dynamic_events || true
  cd - >/dev/null
}}
ftrace > before
"""


def test_a_script_records_function_graph(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """Its counts are the sample's own, and ftrace is as it was."""
    guest(
        f"""{START}
        export PATH={tools}:$PATH
        {FUSETOOLS} script -o record.sh
        own script.before
        sh record.sh -o made.tar -- \
          {SAMPLES}/workload mixed --processes 2 --few /run/mount > workload.json
        own script.after
        ftrace > after"""
    )
    data = tmp_path / "perf.data"
    command = [str(FUSETOOLS), "open", str(tmp_path / "made.tar"), "-o", str(data), "--json"]
    opened = subprocess.run(command, capture_output=True, text=True, check=True)
    outcome = json.loads(opened.stdout)
    assert outcome["warnings"] == [] and outcome["lost"] == 0 and outcome["exit_status"] == 0
    assert +counts(data, "daemon") == +own(tmp_path, "script")
    kernel = counts(data, "kernel")
    requests = counts(data, "request")
    assert requests["FUSE_LOOKUP"] > 0
    assert kernel["fuse_lookup_name"] + kernel["fuse_dentry_revalidate"] >= requests["FUSE_LOOKUP"]
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()


# On one kernel tests/live/test_script_live.py kills a script, and test_kernel_in_guest.py a
# recording with function_graph.
@pytest.mark.usefixtures("campaign")
def test_clean_restores_ftrace_after_a_killed_script(
    guest: vm.Guest, tools: Path, tmp_path: Path
) -> None:
    guest(
        f"""{START}
        export PATH={tools}:$PATH
        {FUSETOOLS} script -o record.sh
        sh record.sh -o killed.tar -- sh -c 'echo $$ > begun; exec sleep 1000' 2> said &
        until [ -s begun ]; do sleep 1; done
        ftrace > during
        kill -9 $!
        kill $(cat begun)
        {FUSETOOLS} clean > cleaned
        ftrace > after"""
    )
    assert "current_tracer:function_graph" in (tmp_path / "during").read_text()
    assert "ftrace's current_tracer as it was" in (tmp_path / "cleaned").read_text()
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()
