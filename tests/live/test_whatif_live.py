"""`fusetools whatif threads=N` against the same workload with N threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording import recorded
from sample import Mounter

import fusetools
from fusetools.results.whatif import MountReplay

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]
CALLERS = 8
DELAYS = ("lookup=20ms", "getattr=20ms")


def replayed(data: Path, threads: int) -> MountReplay:
    (row,) = fusetools.open(data).whatif([f"threads={threads}"]).mounts
    assert row.unknown is None, row.unknown.text
    return row


def test_threads_divide_the_waiting_as_in_the_replay(sample_mount: Mounter, tmp_path: Path) -> None:
    """Most of a request's time is the delay, so that other load hardly counts."""
    waited: dict[int, int] = {}
    for threads in (1, 4):
        mount = sample_mount("--threads", str(threads), delay=DELAYS)
        one = f"for n in 0 1 2 3 4; do stat {mount.path}/dir-00/file-00$n; done"
        work = f"for caller in $(seq {CALLERS}); do ({one}) & done; wait"
        data = tmp_path / f"{threads}.data"
        recorded(data, "--mount", mount.path, "--detail", "stages", "--", "sh", "-c", work)
        row = replayed(data, threads)
        assert row.threads == threads
        waited[threads] = row.recorded_ns
        mount.unmount()
    for threads, other in ((1, 4), (4, 1)):
        row = replayed(tmp_path / f"{threads}.data", other)
        assert row.waited_ns == pytest.approx(waited[other], rel=0.2)
