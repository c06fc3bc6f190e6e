"""`fusetools stuck` beside crowds of an ordinary user's processes: a hang is never reported as
well.

tests/faults/crowds.py makes the crowds and the hanging mount, in a private mount namespace; run
alone, it tries more of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import mounts
import pytest
from sample import ROOT
from variants import variants

CROWDS = ROOT / "tests" / "faults" / "crowds.py"

pytestmark = [
    pytest.mark.live,
    pytest.mark.unrecorded,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and look at others"),
]


def beside(*crowd: str) -> dict[str, Any]:
    """Return stuck's answer for the mount; the script reports a crowd that cannot be made."""
    done = subprocess.run(
        [sys.executable, CROWDS, *crowd], capture_output=True, text=True, timeout=mounts.HANGS
    )
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    print(found)  # shown when a test fails
    return found


@pytest.mark.parametrize(
    "crowd",
    [
        "descriptors 200 20000",
        "waiting 1000",
        "namespaces 20 1000",
        *variants("threads 21000 PATH", "forks 50"),  # one of the threads waits
    ],
)
def test_a_hang_beside_a_crowd(crowd: str) -> None:
    """It finds the cause, or reports it as unknown: exit status 3 in either case."""
    found = beside(*crowd.split())
    assert (found["status"], found["waiting"]) == (3, 1)
    assert found["state"] == "stuck" or (found["state"] == "unknown" and found["unknown"])


def test_a_child_that_was_left_behind_is_no_hang() -> None:
    """It sleeps in state D, and its parent has exited."""
    found = beside("left")
    assert (found["status"], found["state"], found["own"]) == (0, "own", 1)
    assert (found["waiting"], found["callers"]) == (1, [])
