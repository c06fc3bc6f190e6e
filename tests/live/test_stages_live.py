"""fusetools stages on live recordings: settable delays, a daemon short of threads, many callers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Mounter
from numpy.typing import NDArray
from test_live_answers import WORKLOAD, fusetools_command, record

import fusetools
from fusetools.stories import Stories

pytestmark = pytest.mark.live
STAGES = ("begin", "read", "callback_enter", "reply", "end", "runs")  # queue … wakeup
CALLS = 211
DELAY = 400_000
WITHOUT: dict[str, dict[str, float]] = {}  # an operation's usual figures


def durations(stories: Stories, operation: str) -> dict[str, NDArray[np.int64]]:
    """ns of each request from each mark to the next, by the later one's name."""
    mine = stories.of(operation) & (stories.waits == 1) & stories.fated("matched")
    # A page that comes before its caller sleeps has no caller that waits.
    assert mine.sum() >= 0.98 * CALLS
    times = [getattr(stories, mark)[mine].astype(np.int64) for mark in STAGES]
    first = np.where(stories.sys_enter > 0, stories.sys_enter, stories.resumed)[mine]
    found = {"begin": times[0] - first.astype(np.int64)}
    found |= {mark: b - a for mark, a, b in zip(STAGES[1:], times, times[1:])}
    last = stories.sys_exit[mine].astype(np.int64)
    found["sys_exit"] = (last - times[-1])[last > 0]
    found["callback_return"] = stories.callback_return[mine].astype(np.int64) - times[3]
    return found


def usual(found: dict[str, NDArray[np.int64]]) -> dict[str, float]:
    """What others who use these CPUs do not touch: the shortest tenth."""
    return {name: float(np.quantile(ns, 0.1)) for name, ns in found.items() if len(ns)}


@pytest.mark.parametrize(
    ("delay", "stage", "operation", "workload"),
    [
        ("lookup=400us", "reply", "lookup", "stat"),
        ("lookup=400us:spin", "reply", "lookup", "stat"),
        ("lookup=400us:after", "callback_return", "lookup", "stat"),
        ("read=400us", "reply", "read", "read"),
        ("read=400us:after", "callback_return", "read", "read"),
    ],
)
def test_a_delay_is_in_its_stage_and_in_no_other(
    sample_mount: Mounter, tmp_path: Path, delay: str, stage: str, operation: str, workload: str
) -> None:
    """Within 5 % of the delay and 20 us, as the difference of two recordings. What the callback
    does after its reply is in no stage: nobody waits for it."""

    def recorded(*delays: str) -> Stories:
        mount = sample_mount(delay=delays, realtime=True)
        path = mount.path / "big"
        recording = record(tmp_path / "perf.data", [mount], WORKLOAD, workload, CALLS, path)
        mount.clean()
        return recording.stories()

    if operation not in WITHOUT:
        WITHOUT[operation] = usual(durations(recorded(), operation))
    stories = recorded(delay)
    if stage == "reply":
        # Asleep until 60 us before its end, or spinning all the time.
        mine = stories.of(operation) & (stories.waits == 1)
        blocked = float(np.median(stories.blocked[mine]))
        assert blocked == pytest.approx(0 if "spin" in delay else DELAY - 60_000, abs=30_000)
    found = usual(durations(stories, operation))
    assert found.keys() == WITHOUT[operation].keys()
    for name, before in WITHOUT[operation].items():
        added = found[name] - before
        assert added == pytest.approx(DELAY if name == stage else 0, abs=0.05 * DELAY + 20_000), (
            name
        )


@pytest.mark.parametrize("threads", [1, 8])
def test_a_daemon_short_of_threads(sample_mount: Mounter, tmp_path: Path, threads: int) -> None:
    """8 callers: with one thread their requests wait in the queue while it sleeps in callbacks
    for the other 7; with as many threads as callers they do not."""
    mount = sample_mount("--threads", str(threads), delay=("statfs=2ms",), realtime=True)
    script = "".join(f"{WORKLOAD} statfs 53 {mount.path} & " for _ in range(8)) + "wait"
    recording = record(tmp_path / "perf.data", [mount], "sh", "-c", script)
    (statfs,) = (o for o in recording.stages("statfs").operations if o.waits)
    assert statfs.matched == 8 * 53
    stages = {stage.name: stage for stage in statfs.stages}
    queue, daemon = stages["queue"], stages["daemon"]
    assert 2_000_000 <= daemon.p50 < 4_000_000
    stories = recording.stories()
    no_thread = stories.no_thread[stories.of("statfs")]
    if threads == 1:
        assert queue.p50 > 6 * 2_000_000
        assert queue.parts["no_thread"] > 0.9 * queue.total
        assert statfs.stages[1].name == "queue" and queue.share > 0.5
    else:
        assert queue.p50 < 500_000
        assert np.median(no_thread) < 100_000  # at first it has yet to start them
        assert daemon.share > 0.6


def test_what_follows_a_reply_keeps_the_only_thread(sample_mount: Mounter, tmp_path: Path) -> None:
    """One thread that is busy for 1 ms after each reply: the next request waits for the rest."""
    mount = sample_mount("--threads", "1", delay=("statfs=1ms:after",), realtime=True)
    recording = record(tmp_path / "perf.data", [mount], WORKLOAD, "statfs", CALLS, mount.path)
    (statfs,) = (o for o in recording.stages("statfs").operations if o.waits)
    (queue,) = (stage for stage in statfs.stages if stage.name == "queue")
    assert queue.parts["no_thread"] / queue.requests == pytest.approx(0.85e6, rel=0.18)


def test_many_callers(sample_mount: Mounter, tmp_path: Path) -> None:
    """8 processes at work: 99.9 % matched, sums exact, system calls whole."""
    mount = sample_mount()
    recording = record(tmp_path / "perf.data", [mount], WORKLOAD, "mixed", mount.path)
    found = json.loads(fusetools_command("stages", "-i", recording.path, "--json"))
    requests = found["requests"]
    assert requests["begun"] > 10_000
    assert requests["matched"] >= 0.999 * requests["begun"]
    for o in found["operations"]:
        assert sum(stage["total_ns"] for stage in o["stages"]) == o["total_ns"]
        assert o["requests"] - o["matched"] == sum(o["unmatched"].values())
    by_operation = {(o["operation"], o["waits"]): o for o in found["operations"]}
    # All that matter of stages; forgets have none.
    names = {s["stage"].split("+")[-1] for o in found["operations"] for s in o["stages"]}
    assert names == {"setup", "queue", "dispatch", "daemon", "reply", "wakeup", "vfs_after"}
    assert not by_operation["release", False]["unmatched"]
    assert ("release", True) not in by_operation

    # What callers wait for in one system call, one after the other, is the call, exactly.
    stories = recording.stories()
    waits = (stories.waits == 1) & stories.fated("matched") & (stories.syscall >= 0)
    whole: dict[tuple[int, int], int] = {}
    total = 0
    order = np.lexsort((stories.begin, stories.tid))
    start = 0
    for i in order[waits[order]]:
        if stories.sys_enter[i]:
            start, total = int(stories.sys_enter[i]), 0
        from_ = int(stories.sys_enter[i] or stories.resumed[i])
        to = int(stories.sys_exit[i] or stories.runs[i])
        total += to - from_
        if stories.sys_exit[i] and start:
            assert total == int(stories.sys_exit[i]) - start
            whole[int(stories.tid[i]), start] = total
    assert len(whole) > 5_000
    columns = recording.calls()
    syscalls = columns.layer == 0
    entries = {
        (int(tid), int(start)): int(ns)
        for tid, start, ns in zip(
            columns.tid[syscalls], columns.start[syscalls], columns.duration[syscalls]
        )
    }
    assert all(entries[call] == ns for call, ns in whole.items())


def test_read_ahead_has_no_caller(sample_mount: Mounter, tmp_path: Path) -> None:
    """cat of a file that the kernel caches: most reads are ahead of it. Who is woken up by the end
    of one had waited for it."""
    mount = sample_mount(kernel_cache=60, delay=("read=300us",))
    files = " ".join(str(mount.path / f"dir-00/file-{i:03}") for i in range(20))
    script = f"cat {mount.path}/big {files} > /dev/null"
    recording = record(tmp_path / "perf.data", [mount], "sh", "-c", script)
    stories = recording.stories()
    read = stories.of("read")
    assert read.sum() > 10 and stories.fated("matched")[read].all()
    woken = read & (stories.waits == 1)
    assert woken.sum() > 0 and (stories.waking[woken] > 0).all()
    assert (stories.end[woken] <= stories.waking[woken]).all()
    assert (stories.runs[woken] >= stories.waking[woken]).all()
    for o in recording.stages("read").operations:
        assert sum(stage.total for stage in o.stages) == o.total


def test_a_caller_that_is_killed(sample_mount: Mounter, tmp_path: Path) -> None:
    """While its request waits in the queue of the only thread, which is at another for 1 s."""
    mount = sample_mount("--threads", "1", delay=("statfs=1s",))
    script = (
        f"{WORKLOAD} statfs 1 {mount.path} & sleep 0.2; "
        f"{WORKLOAD} statfs 1 {mount.path} & sleep 0.2; kill -9 $!; wait"
    )
    recording = record(tmp_path / "perf.data", [mount], "sh", "-c", script)
    stages = json.loads(fusetools_command("stages", "-i", recording.path, "statfs", "--json"))
    (statfs,) = stages["operations"]
    assert (statfs["requests"], statfs["matched"]) == (2, 1)
    assert statfs["unmatched"] == {"interrupted": 1}
    assert "1 interrupted" in fusetools_command("stages", "-i", recording.path, "statfs")


def test_unfinished_is_not_lost(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(delay=("statfs=2s",))
    script = f"{WORKLOAD} statfs 1 {mount.path} & sleep 0.3"
    recording = record(tmp_path / "perf.data", [mount], "sh", "-c", script)
    (statfs,) = recording.stages("statfs").operations
    assert statfs.unmatched == {"unfinished": 1} and not statfs.matched
    said = fusetools_command("stages", "-i", recording.path, "statfs")
    assert said.startswith("statfs: 1 request, 0 matched, 1 not finished at the end\n")


def test_several_mounts(sample_mount: Mounter, tmp_path: Path) -> None:
    """Request numbers repeat between them: each story is of one daemon."""
    one, other = sample_mount(), sample_mount(delay=("statfs=1ms",))
    script = f"{WORKLOAD} statfs 211 {one.path} & {WORKLOAD} statfs 307 {other.path}; wait"
    recording = record(tmp_path / "perf.data", [one, other], "sh", "-c", script)
    found = {o.key: o for o in recording.stages("statfs", by="mount").operations}
    assert {key: o.matched for key, o in found.items()} == {
        str(one.path): 211,
        str(other.path): 307,
    }
    assert (found[str(other.path)].p50 or 0) > 1_000_000 > (found[str(one.path)].p50 or 0)
    stories = fusetools.open(recording.path).stories()
    served = {one.connection: one.pid, other.connection: other.pid}
    seen = stories.daemon_pid > 0
    assert seen.any()
    for connection, pid in served.items():
        assert set(stories.daemon_pid[seen & (stories.connection == connection)]) == {pid}
