"""fusetools stages on live recordings: settable delays, a daemon short of threads, many callers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from affairs import Call
from columns import Columns
from mounts import end_with_the_test
from recording import opened, printed
from sample import BUILD, Mounter, SampleMount, until
from truth import Stock, behind, hold, own_calls

import fusetools

pytestmark = pytest.mark.live
WORKLOAD = BUILD / "workload"
DELAYS = {  # us; while the caller waits, and after the reply
    "lookup": ("lookup=400us", 400, 0),
    "getattr": ("getattr=300us:spin", 300, 0),
    "readlink": ("readlink=500us:after", 0, 500),
    "getxattr": ("getxattr=200us:after:spin", 0, 200),
    "read": ("read=400us", 400, 0),
}


def test_a_delay_is_in_its_stage_and_in_no_other(sample_mount: Mounter, tmp_path: Path) -> None:
    """Each request's stages begin and end at stock perf's events, and contain the daemon's own
    delays.

    A delay before the reply lies in the stage `daemon`; a delay after it lies in no stage. This
    holds on a machine under any load.
    """
    mount = sample_mount(delay=tuple(delay for delay, *_ in DELAYS.values()))
    script = "; ".join(
        f"{WORKLOAD} {work} {mount.path}/{path}"
        for work, path in (
            ("stat 53", "big"),
            ("readlink 53", "dir-01/link-07"),
            ("getxattr 53", "big"),
            ("read 53", "big"),
        )
    )
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", script)
    stories, calls = Columns(recording.requests()), own_calls(mount)
    stock = Stock(recording.path, mount)
    found = hold(stories, stock)
    counted: Counter[str] = Counter()
    for key, call in calls.items():
        seen, i = stock.seen[key], found[key]
        name = stories.operation[i]
        assert name == call.operation
        counted[name] += 1
        # Every time that the daemon noted lies in its stage.
        moments = [seen.sys_enter, seen.begin, seen.read, seen.callback_enter, call.entered]
        _, before, after = DELAYS.get(name, ("", 0, 0))
        if before:
            moments += [call.delay_begin, call.delay_begin + before * 1000, call.delay_end]
        moments += [seen.reply]
        if after:
            assert (call.delay_begin, call.delay_end) == (0, 0)
            in_callback = [call.after_begin, call.after_begin + after * 1000, call.after_end]
            assert sorted(in_callback) == in_callback and seen.reply <= call.after_begin
        assert sorted(moments) == moments, (name, seen, call)
        assert seen.reply <= seen.end
        if stories.waits[i] == 1:
            assert seen.end <= (seen.runs or seen.sys_exit or seen.end)
        assert max(call.after_end, seen.reply) <= call.left <= seen.callback_return
        if "spin" in DELAYS.get(name, ("",))[0] and before:
            assert overlap_of_sleep(stock, seen.tid, call) == 0
    assert counted == {
        **{"lookup": 53 + 2 * 53 + 53 + 1, "getattr": 53, "readlink": 53, "getxattr": 53},
        **{"open": 1, "read": 53, "release": 1},
    }

    # The totals add up from these; their sum is the whole.
    for o in recording.stages().operations:
        if o.operation == "flush":
            continue  # libfuse answers by itself
        mine = stories.of(o.operation) & stories.fated("matched") & (stories.waits == o.waits)
        assert o.matched == mine.sum()
        shown = {stage.name.split("+")[-1]: stage.total_ns for stage in o.stages}
        for stage, begin, end in (
            ("queue", "begin", "read"),
            ("dispatch", "read", "callback_enter"),
            ("daemon", "callback_enter", "reply"),
            ("reply", "reply", "end"),
        ):
            spans = getattr(stories, f"{end}_ns")[mine] - getattr(stories, f"{begin}_ns")[mine]
            ns = spans.sum()
            assert shown.get(stage, 0) == ns, (o.operation, stage)
        assert sum(stage.total_ns for stage in o.stages) == o.total_ns


def overlap_of_sleep(stock: Stock, tid: int, call: Call) -> int:
    """Return ns of its delay for which a call slept."""
    return stock.idle(tid, call.delay_begin, call.delay_end)[0]


def hold_queue(recording: fusetools.Recording, mount: SampleMount, operation: str) -> list[int]:
    """Compare the time that requests waited for a thread with the threads' work, by stock perf.

    Return, for each request, the ns for which its thread was in other calls, by the daemon's list.
    """
    stories, stock, calls = (
        Columns(recording.requests()),
        Stock(recording.path, mount),
        own_calls(mount),
    )
    waited, total = [], 0
    for key, i in hold(stories, stock).items():
        if stories.operation[i] != operation:
            continue
        seen = stock.seen[key]
        no_thread, no_cpu = int(stories.no_thread_ns[i]), int(stories.no_cpu_ns[i])
        total += no_thread
        free = min(max(seen.begin, seen.free), seen.read) - seen.begin
        waited.append(behind(seen, calls, stock))
        if stories.daemon_waking_ns[i]:
            # A thread slept and was woken up for the request: no thread was missing.
            assert no_thread == 0, seen
        else:
            # A free thread may also wait for a CPU.
            assert no_thread <= free <= no_thread + no_cpu, seen
            assert waited[-1] <= no_thread + no_cpu, seen
    (answer,) = (o for o in recording.stages(operation).operations if o.waits)
    (queue,) = (stage for stage in answer.stages if stage.name == "queue")
    assert queue.parts_ns["no_thread"] == total
    assert answer.matched == len(waited)
    return waited


@pytest.mark.parametrize("threads", [1, 8])
def test_a_daemon_short_of_threads(sample_mount: Mounter, tmp_path: Path, threads: int) -> None:
    """8 callers: with one thread their requests wait in the queue while it sleeps in other
    callbacks.

    No request would wait as long as a callback sleeps only if each caller began when all previous
    ones had ended, at least 220 ms later. If 1 in 20 did so, all 7 would in 1 of 10^9 runs.
    """
    mount = sample_mount("--threads", str(threads), delay=("statfs=20ms",))
    script = "".join(f"{WORKLOAD} statfs 11 {mount.path} & " for _ in range(8)) + "wait"
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", script)
    waited = hold_queue(recording, mount, "statfs")
    assert len(waited) == 8 * 11
    calls = [call for call in mount.calls() if call.operation == "statfs"]
    together = sum(a.left > b.entered for a, b in zip(calls, calls[1:]))
    if threads == 1:
        assert together == 0
        assert max(waited) >= 20_000_000
    else:
        assert together > 0


@pytest.fixture
def busy_cpu() -> Iterator[int]:
    """A CPU that is always busy with three processes."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("callers and daemon need a CPU each")
    burners = []
    try:
        for _ in range(3):
            command = [sys.executable, "-c", "while True: pass"]
            burners.append(subprocess.Popen(command, preexec_fn=end_with_the_test))
            os.sched_setaffinity(burners[-1].pid, cpus[:1])
        yield cpus[0]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_a_daemon_on_a_busy_cpu(sample_mount: Mounter, tmp_path: Path, busy_cpu: int) -> None:
    """Its time without a CPU is neither its own time nor wake-up time, and queue names it."""
    mount = sample_mount("--threads", "1", delay=("statfs=3ms:spin",))
    for thread in os.listdir(f"/proc/{mount.pid}/task"):
        os.sched_setaffinity(int(thread), [busy_cpu])
    others = ",".join(map(str, sorted(os.sched_getaffinity(0) - {busy_cpu})))
    command = ["taskset", "-c", others, WORKLOAD, "statfs", 31, mount.path]
    recording = opened(tmp_path / "perf.data", [mount], *command)
    assert len(hold_queue(recording, mount, "statfs")) == 31
    stock = Stock(recording.path, mount)
    idle = [stock.idle(s.tid, s.callback_enter, s.reply) for s in stock.seen.values()]
    blocked, ready = (sum(ns) for ns in zip(*idle))
    (answer,) = (o for o in recording.stages("statfs").operations if o.waits)
    stages = {stage.name.split("+")[-1]: Counter(stage.parts_ns) for stage in answer.stages}
    assert (stages["daemon"]["blocked"], stages["daemon"]["runnable"]) == (blocked, ready)
    # It waits for its CPU during its work, or before.
    lacking = ready + stages["queue"]["runnable"]
    assert lacking > 10 * (blocked + stages["queue"]["wakeup"])
    (queue,) = recording.queue().mounts
    assert queue.runnable_ns >= lacking
    assert "The daemon is short of CPU: " in printed("queue", "-i", recording.path)


def test_work_after_a_reply_delays_the_next_request(sample_mount: Mounter, tmp_path: Path) -> None:
    """One thread is busy for 10 ms after each reply: the next request waits for the rest of that
    time.

    No time is left only if a caller was kept from its CPU for all of it. If this happened
    independently to 2 of 3, it would happen to all 52 in 1 of 10^9 runs.
    """
    mount = sample_mount("--threads", "1", delay=("statfs=10ms:after",))
    recording = opened(tmp_path / "perf.data", [mount], WORKLOAD, "statfs", 53, mount.path)
    waited = hold_queue(recording, mount, "statfs")
    assert len(waited) == 53 and max(waited) > 0


def missing_switches(found: dict[str, Any]) -> int:
    """Return how many requests are missing according to the recording."""
    missing = found["recording"]["missing"]
    return sum(m["figures"]["switches"] for m in missing if m["code"] == "switches_missing")


def test_many_callers(sample_mount: Mounter, tmp_path: Path) -> None:
    """With 8 processes at work: 99.9 % matched, sums exact, system calls complete."""
    mount = sample_mount()
    recording = opened(tmp_path / "perf.data", [mount], WORKLOAD, "mixed", mount.path)
    found = json.loads(printed("stages", "-i", recording.path, "--json"))
    requests = found["recording"]["requests"]
    assert requests["begun"] > 10_000
    assert requests["matched"] >= 0.999 * requests["begun"]
    for o in found["operations"]:
        assert sum(stage["total_ns"] for stage in o["stages"]) == o["total_ns"]
        assert o["requests"] - o["matched"] == sum(o["unmatched"].values())
    by_operation = {(o["operation"], o["waits"]): o for o in found["operations"]}
    # All operations with stages; forgets have none.
    names = {s["name"].split("+")[-1] for o in found["operations"] for s in o["stages"]}
    assert names == {"setup", "queue", "dispatch", "daemon", "reply", "caller_wakeup", "vfs_exit"}
    assert not by_operation["release", False]["unmatched"]
    assert ("release", True) not in by_operation

    # A system call's requests, one after the other, and the rest are the call, exactly.
    stories = Columns(recording.requests())
    waits = (stories.waits == 1) & stories.fated("matched") & (stories.syscall != "")
    whole: dict[tuple[int, int], int] = {}
    total = 0
    order = np.lexsort((stories.begin_ns, stories.tid))
    start = before = outside = 0
    unseen = 0
    for i in order[waits[order]]:
        from_ = int(stories.sys_enter_ns[i] or stories.resumed_ns[i])
        if stories.sys_enter_ns[i]:
            start, total, outside, before = from_, 0, 0, from_
        to = int(stories.leaves_ns[i] or stories.sys_exit_ns[i] or stories.runs_ns[i])
        if not (from_ and to):
            # A switch that no tracer saw (docs/design/recording-cost.md).
            start, unseen = 0, unseen + 1
            continue
        # The caller's waits between two requests, or after the last one, belong to none of them.
        assert from_ >= before or not start
        total, outside, before = total + to - from_, outside + from_ - before, to
        if stories.sys_exit_ns[i] and start:
            outside += int(stories.sys_exit_ns[i]) - to
            total += outside
            assert total == int(stories.sys_exit_ns[i]) - start
            whole[int(stories.tid[i]), start] = total
    # A call with such a switch is not checked.
    assert len(whole) + unseen > 5_000
    assert unseen <= 2 * missing_switches(found)  # of the previous one, of the next one
    columns = Columns(recording.calls())
    syscalls = columns.layer == "syscall"
    entries = {
        (int(tid), int(start)): int(ns)
        for tid, start, ns in zip(
            columns.tid[syscalls], columns.begin_ns[syscalls], columns.duration_ns[syscalls]
        )
    }
    assert all(entries[call] == ns for call, ns in whole.items())


def test_read_ahead_has_no_caller(sample_mount: Mounter, tmp_path: Path) -> None:
    """cat of a file that the kernel caches: most reads are read-aheads.

    A thread that the end of a read wakes up had waited for it.
    """
    mount = sample_mount(kernel_cache=60, delay=("read=2ms",))
    files = " ".join(str(mount.path / f"dir-00/file-{i:03}") for i in range(20))
    script = f"cat {mount.path}/big {files} > /dev/null"
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", script)
    stories = Columns(recording.requests())
    read = stories.of("read")
    assert read.sum() > 10 and stories.fated("matched")[read].all()
    woken = read & (stories.waits == 1)
    assert woken.sum() > 0 and (stories.waking_ns[woken] > 0).all()
    assert (stories.end_ns[woken] <= stories.waking_ns[woken]).all()
    ran = stories.runs_ns[woken]
    if not ran.all():  # of switches that no tracer saw
        assert Stock(tmp_path / "perf.data", mount).lacks_ends
    assert ((ran >= stories.waking_ns[woken]) | (ran == 0)).all()
    for o in recording.stages("read").operations:
        assert sum(stage.total_ns for stage in o.stages) == o.total_ns


def test_a_caller_that_is_killed(sample_mount: Mounter, tmp_path: Path) -> None:
    """It waits in the queue of the only thread, which works on another request, and is stopped."""
    mount = sample_mount("--threads", "1", delay=("statfs=300ms",))
    work = f"{WORKLOAD} statfs 1 {mount.path}"
    number = 137 if platform.machine() == "x86_64" else 43  # of the system call
    script = (
        f"{work} & first=$!; {mount.until_in('statfs')}; {mount.until_stopped()};"
        f"{work} & {until(f'grep -q ^{number}. /proc/$!/syscall')}; kill -9 $!; wait $!;"
        f"kill -CONT {mount.pid}; wait $first"
    )
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", script)
    stages = json.loads(printed("stages", "-i", recording.path, "statfs", "--json"))
    (statfs,) = stages["operations"]
    assert (statfs["requests"], statfs["matched"]) == (2, 1)
    assert statfs["unmatched"] == {"interrupted": 1}
    assert "1 interrupted" in printed("stages", "-i", recording.path, "statfs")


def test_unfinished_is_not_lost(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(delay=("statfs=60s",))
    script = f"{WORKLOAD} statfs 1 {mount.path} >/dev/null 2>&1 & {mount.until_in('statfs')}"
    recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", script)
    mount.process.kill()  # the daemon would answer first
    (statfs,) = recording.stages("statfs").operations
    assert statfs.unmatched == {"unfinished": 1} and not statfs.matched
    said = printed("stages", "-i", recording.path, "statfs")
    assert said.startswith("statfs: 1 request, 0 matched, 1 not answered by the end\n")


def test_several_mounts(sample_mount: Mounter, tmp_path: Path) -> None:
    """Request numbers of the daemons coincide: each story belongs to one daemon."""
    one, other = sample_mount(), sample_mount(delay=("statfs=1ms",))
    script = f"{WORKLOAD} statfs 211 {one.path} & {WORKLOAD} statfs 307 {other.path}; wait"
    recording = opened(tmp_path / "perf.data", [one, other], "sh", "-c", script)
    found = {o.key: o for o in recording.stages("statfs", by="mount").operations}
    assert {key: o.matched for key, o in found.items()} == {
        str(one.path): 211,
        str(other.path): 307,
    }
    stories = Columns(recording.requests())
    at = hold(stories, Stock(recording.path, one, other))
    for mount in (one, other):
        for key, call in own_calls(mount).items():
            i = at[key]
            assert (
                stories.callback_enter_ns[i]
                <= call.entered
                < call.left
                <= stories.callback_return_ns[i]
            )
            assert (call.delay_end > 0) == (mount is other and call.operation == "statfs")
    served = {one.connection: one.pid, other.connection: other.pid}
    seen = stories.daemon_pid > 0
    assert seen.any()
    for connection, pid in served.items():
        assert set(stories.daemon_pid[seen & (stories.connection == connection)]) == {pid}
