"""A perf without --control (before 5.10) records the same calls."""

from __future__ import annotations

import shutil
from pathlib import Path

import affairs
import pytest
from recording import counts, environment, record, session
from sample import BUILD, Mounter
from script import needs_perf

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_no_file", "leaves_nothing")]
# It refuses what perf 5.9 does not know.
WRAPPER = """#!/bin/sh
case "$*" in "record -h") {perf} record -h 2>&1 | grep -v -e --control; exit 129 ;; esac
for word; do
  case $word in --control | -D) echo " Error: unknown option $word" >&2; exit 129 ;; esac
done
exec {perf} "$@"
"""


def test_each_call_is_recorded(sample_mount: Mounter, tmp_path: Path) -> None:
    needs_perf()
    tools = tmp_path / "tools"
    tools.mkdir(mode=0o755)
    (tools / "perf").write_text(WRAPPER.format(perf=shutil.which("perf")))
    (tools / "perf").chmod(0o755)
    mount = sample_mount()
    before = mount.callbacks()
    env = environment(PATH=f"{tools}:{environment()['PATH']}")
    words = [BUILD / "workload", "mixed", "--processes", 2, mount.path]
    done = record(tmp_path, "--mount", mount.path, "--", *words, env=env)
    own = mount.callbacks() - before
    assert done.status == 0 and "takes no commands" in done.stderr, done.stderr
    assert "none lost" in done.stderr and "ended early" not in done.stderr
    seen = counts(tmp_path / "perf.data")
    assert own["cvmfs_lookup"] > 100
    for name in affairs.CALLBACKS.values():
        if not name.startswith("cvmfs_forget"):  # memory may be reclaimed at any time
            assert seen[f"fuse_daemon:{name}"] == own[name], name
            assert seen[f"fuse_daemon:{name}__return"] == own[name], name
    facts = session(tmp_path / "perf.data")
    assert facts["exit_status"] == 0 and facts["lost"] == {} and facts["misses"] == {}
