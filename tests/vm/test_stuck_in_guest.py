"""fusetools stuck, top and trace on each kernel: their live tests, run by pytest in the guest."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import mounts
import pytest
import vm
from samplefs import FUSETOOLS, REPOSITORY

pytestmark = pytest.mark.vm

# Facts that a kernel could show otherwise: locks and their holders, ages, a daemon's own mount, the
# state of its device when it is stopped or gone.
STUCK = ("test_a_daemon_that_waits_for_its_own_mount",)
STUCK_TOO = (
    "test_callers_and_their_ages",
    "test_two_mutexes",
    "test_a_full_background_list",
    "test_a_quiet_mount",
    "test_a_lock_that_is_held",
    "test_a_condition_that_nobody_signals",
    "test_a_server_that_does_not_answer",
    "test_an_sftp_server_that_is_stopped",
    "test_a_daemon_that_is_stopped",
    "test_a_daemon_whose_cgroup_is_frozen",
    "test_requests_that_went_past_the_limit_of_the_background_list",
    "test_a_killed_daemon_whose_device_another_process_holds",
)
# Without tests that need the kernel's own tracepoints (Linux 6.12) or a terminal.
TOP = ("test_a_request_under_way_has_its_age_and_its_path",)
TOP_TOO = (
    "test_trace_prints_the_daemon_s_own_calls",
    "test_killed_it_leaves_what_clean_removes",
    "test_one_line_for_each_interval_where_there_is_no_terminal",
)


def test_stuck_and_top(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    all_pass(guest, tmp_path, tools, {"test_stuck_live.py": STUCK, "test_top_live.py": TOP})


@pytest.mark.usefixtures("campaign")
def test_stuck_and_top_on_all_kernels(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    files = {"test_stuck_live.py": STUCK_TOO, "test_top_live.py": TOP_TOO}
    all_pass(guest, tmp_path, tools, files)


def all_pass(
    guest: vm.Guest, folder: Path, tools: Path, files: Mapping[str, Sequence[str]]
) -> None:
    tests = [f"tests/live/{file}::{name}" for file, names in files.items() for name in names]
    hangfs = mounts.build_hangfs(folder)
    guest(
        f"""here=$PWD
        cd {REPOSITORY}
        {FUSETOOLS} --version  # from now on the command is a fork (forked.py)
        export FUSETOOLS_EMULATED=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PATH={tools}:$PATH
        export FUSETOOLS_HANGFS={hangfs}
        {sys.executable} -m pytest -p pytest_timeout -p no:cacheprovider -q -rA --durations 20 \\
          {" ".join(tests)} > $here/said 2>&1 || true"""
    )
    said = (folder / "said").read_text()
    wanted = {name for names in files.values() for name in names}
    assert set(re.findall(r"^PASSED .*::(\w+)", said, re.MULTILINE)) == wanted, said
    assert not re.search("^(FAILED|ERROR|SKIPPED)", said, re.MULTILINE), said
