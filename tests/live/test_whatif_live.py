"""`fusetools whatif` against the same workload with that limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from recording import recorded
from sample import Mounter

import fusetools
from fusetools.results.whatif import MountReplay

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]
CALLERS = 8
# Before other programs of the machine.
FIRST = ("chrt", "--rr", "1")
# Most of a request's time is the delay, so that other load hardly counts.
DELAYS = ("lookup=20ms", "getattr=20ms")
# Each thread looks at files of its own; prints the time that all of them waited, in ns.
# (The kernel looks up one name of a directory after the other.)
STATS = f"""
import os, sys, threading, time
waited = []
def look(*paths):
    begin = time.perf_counter_ns()
    for path in paths:
        os.stat(path)
    waited.append(time.perf_counter_ns() - begin)
places = [f"{{sys.argv[1]}}/dir-0{{n}}" for n in range({CALLERS})]
look(*places)
threads = [threading.Thread(target=look, args=[f"{{place}}/file-00{{n}}" for n in range(10)])
           for place in places]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(waited))
"""


def waited_ns(work: list[str], data: Path | None = None, *options: object) -> int:
    """Run a workload that prints how long its callers waited; recorded if a file is given."""
    if data is None:
        done = subprocess.run(work, check=True, capture_output=True, text=True)
    else:
        done = recorded(data, *options, "--", *work)
    return int(done.stdout)


def replayed(data: Path, threads: int) -> MountReplay:
    (row,) = fusetools.open(data).whatif([f"threads={threads}"]).mounts
    assert row.unknown is None, row.unknown.text
    assert row.callers == CALLERS + 1  # the main thread, too
    return row


def test_threads_divide_the_waiting_as_in_the_replay(sample_mount: Mounter, tmp_path: Path) -> None:
    """One recording of each of two numbers of threads predicts all others."""
    waited: dict[int, int] = {}
    for threads in range(1, 9):
        mount = sample_mount("--threads", str(threads), kernel_cache=60, delay=DELAYS, before=FIRST)
        work = [*FIRST, sys.executable, "-c", STATS, str(mount.path)]
        data = tmp_path / f"{threads}.data" if threads in (1, 6) else None
        waited[threads] = waited_ns(work, data, "--mount", mount.path, "--detail", "stages")
        if data:
            assert replayed(data, threads).threads == threads
        mount.unmount()
    for recording in (1, 6):
        for threads, measured in waited.items():
            row = replayed(tmp_path / f"{recording}.data", threads)
            print(recording, threads, measured, row.low_ns, row.waited_ns, row.high_ns)
            assert row.waited_ns == pytest.approx(measured, rel=0.2)


# Each thread reads a file of its own; prints the time that all of them waited, in ns.
READS = """
import os, sys, threading, time
waited = []
def read(path):
    begin = time.perf_counter_ns()
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 16):
            pass
    waited.append(time.perf_counter_ns() - begin)
threads = [threading.Thread(target=read, args=(path,)) for path in sys.argv[1:]]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(waited))
"""


def test_asynchronous_requests_wait_for_room_as_in_the_replay(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    waited: dict[int, int] = {}
    for limit in (1, 2, 3, 6, 12):
        mount = sample_mount("--threads", "16", delay=("read=40ms",), before=FIRST, own_tree=True)
        for n in range(6):
            (mount.tree / f"large-{n}").write_bytes(b"x" * (1 << 20))
        script = (
            f"mount -t fusectl none /mnt && cd /mnt/{mount.connection} "
            # The kernel would read ahead less.
            f"&& echo {limit} > max_background && echo 100 > congestion_threshold"
        )
        subprocess.run(["unshare", "-m", "sh", "-c", script], check=True)
        work = [*FIRST, sys.executable, "-c", READS, *(f"{mount.path}/large-{n}" for n in range(6))]
        data = tmp_path / f"{limit}.data" if limit in (1, 12) else None
        waited[limit] = waited_ns(work, data, "--mount", mount.path)
        mount.unmount()
    for recording in (1, 12):
        for limit, measured in waited.items():
            found = fusetools.open(tmp_path / f"{recording}.data").whatif(
                [f"max_background={limit}"]
            )
            (row,) = found.mounts
            assert row.unknown is None, row.unknown.text
            assert row.max_background == recording
            print(recording, limit, measured, row.low_ns, row.waited_ns, row.high_ns)
            assert row.waited_ns == pytest.approx(measured, rel=0.25)
