"""fusetools stuck on each kernel: the tests of hanging mounts, run by pytest in the guest."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import vm
from samplefs import REPOSITORY

pytestmark = pytest.mark.vm

# What a kernel could show otherwise: locks and who holds them, ages, a daemon's own mount, what its
# device tells of it when it is stopped or gone.
TESTS = (
    "test_a_quiet_mount",
    "test_callers_and_their_ages",
    "test_two_mutexes",
    "test_a_lock_that_is_held",
    "test_a_condition_that_nobody_signals",
    "test_a_daemon_that_waits_for_its_own_mount",
    "test_a_daemon_that_is_stopped",
    "test_a_killed_daemon_whose_device_another_process_holds",
)


def test_stuck(kernel: vm.Kernel, guest: vm.Guest, tmp_path: Path) -> None:
    tests = " ".join(f"tests/live/test_stuck_live.py::{name}" for name in TESTS)
    pytests = f"{sys.executable} -m pytest -p no:cacheprovider -p no:xdist -q -rA --durations 20"
    guest(
        f"""here=$PWD
        cd {REPOSITORY}
        export FUSETOOLS_EMULATED=1
        {pytests} {tests} > $here/said 2>&1 || true""",
        900,
    )
    said = (tmp_path / "said").read_text()
    passed = set(re.findall(r"^PASSED .*::(\w+)", said, re.MULTILINE))
    assert passed == set(TESTS), said
    assert not re.search("^(FAILED|ERROR|SKIPPED)", said, re.MULTILINE), said
