"""slow, show, errors, queue and export of live recordings, compared with the sample file system."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import affairs
import perfetto_trace
import pytest
from columns import Columns
from recording import recorded
from sample import BUILD, Mounter, SampleMount
from truth import Stock, overlap, own_calls

import fusetools
from fusetools.reasons import Code
from fusetools.render.text.slow import render as slow_text
from fusetools.results.queue import SHORT

pytestmark = pytest.mark.live
WORKLOAD = BUILD / "workload"
NANOSLEEP = 230 if platform.machine() == "x86_64" else 115
INSIDE = {"queue", "dispatch", "daemon", "reply"}
MISSING, PRESENT, XATTRS = 101, 53, 97  # prime


def record(output: Path, mount: SampleMount, script: str) -> tuple[fusetools.Recording, list[Any]]:
    """Record a shell script on the mount.

    Return the recording, and its programs' output as JSON.
    """
    done = recorded(output, "--mount", mount.path, "--", "sh", "-c", script)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return fusetools.open(output), said


def test_errors_are_the_workloads_own(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(error=("getxattr=EIO:10%",))
    before = mount.counters()
    recording, said = record(
        tmp_path / "perf.data",
        mount,
        f"{WORKLOAD} stat {MISSING} {mount.path}/none-1 {mount.path}/none-2;"
        f"{WORKLOAD} stat {PRESENT} {mount.path}/big;"
        f"{WORKLOAD} getxattr {XATTRS} {mount.path}/big",
    )
    truth: Counter[str] = Counter()
    for one in said:
        truth.update(one["errors"])
    assert truth["ENOENT"] == MISSING and 0 < truth["EIO"] < XATTRS
    after = mount.counters()
    found = {o.operation: o for o in recording.errors().operations}
    assert found["lookup"].negative == MISSING == found["lookup"].absent
    assert found["lookup"].requests == MISSING + PRESENT + XATTRS
    assert found["lookup"].errors == ()
    assert found["getxattr"].errors == (("EIO", truth["EIO"]),)
    name = "samplefs.n_error_getxattr"
    assert after[name] - before[name] == truth["EIO"]
    assert found["getattr"].failed == 0


def test_paths_and_inodes_are_the_file_systems(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    recording, _ = record(
        tmp_path / "perf.data", mount, f"find {mount.path}/dir-00 {mount.path}/dir-01 -size +1M"
    )
    result = recording.slowest(most=10_000)
    assert not result.guessed
    assert not result.facts.losses.lost
    about: dict[str, int] = {}
    for r in result.requests:
        assert r.whole and r.path is not None, r
        if r.inode is not None and r.operation in ("lookup", "getattr", "opendir"):
            assert about.setdefault(r.path, r.inode) == r.inode
    files = sum(len(files) for _, _, files in os.walk(mount.tree / "dir-00"))
    assert len(about) > files > 100
    for path, inode in about.items():
        assert inode == 1 if not path else os.lstat(mount.path / path).st_ino == inode, path
    assert {path.partition("/")[0] for path in about} >= {"dir-00", "dir-01"}


def test_a_delay_makes_a_request_slow(sample_mount: Mounter, tmp_path: Path) -> None:
    """Each request's time is stock perf's, and contains the daemon's own time of its delay."""
    mount = sample_mount(delay=("read=30ms:2%",))
    recording, _ = record(tmp_path / "perf.data", mount, f"{WORKLOAD} read 101 {mount.path}/big")
    stock, calls = Stock(recording.path, mount), own_calls(mount)
    result = recording.slowest("read", most=500).requests
    assert len(result) == 101
    # The caller's time, from the system call's entry to its end. A read that was answered before
    # its caller slept may be a read-ahead: then from its own begin to its end.
    durations = {
        key: seen.end - seen.begin if seen.runs == seen.end else seen.sys_exit - seen.sys_enter
        for key, seen in stock.seen.items()
    }
    slowest = sorted((durations[mount.connection, r.unique or 0] for r in result), reverse=True)
    assert [r.duration_ns for r in result] == slowest
    assert recording.slowest("read", most=10).requests == result[:10]
    delayed = [r for r in result if calls[mount.connection, r.unique or 0].delay_end]
    assert len(delayed) == 2
    for r in delayed:
        key = mount.connection, r.unique or 0
        seen, call = stock.seen[key], calls[key]
        assert r.path == "big" and r.answered_bytes == 4096
        daemon = dict(r.stages)["daemon"]
        assert daemon == seen.reply - seen.callback_enter
        assert daemon >= call.delay_end - call.delay_begin >= 30_000_000
        inside = {stage: ns for stage, ns in r.stages if stage in INSIDE}
        assert inside.keys() == INSIDE and sum(inside.values()) == seen.end - seen.begin
        assert sum(ns for _, ns in r.stages) == r.duration_ns
        assert r.meanwhile is not None
        asleep, _ = stock.idle(seen.tid, seen.callback_enter, seen.reply)
        assert r.meanwhile.blocked_ns == asleep
        slept = [
            until - since
            for number, since, until in stock.syscalls[seen.tid]
            if number == NANOSLEEP and seen.callback_enter < since < seen.reply
        ]
        # The callback sleeps until 60 us before its end.
        assert len(slept) == 1 and 0 < slept[0] < call.delay_end - call.delay_begin
        told = [(calls, ns) for name, calls, ns in r.meanwhile.syscalls if "nanosleep" in name]
        assert told == [(1, slept[0])]
        shown = recording.show(r.unique or 0)
        assert any("clock_nanosleep" in moment.daemon for moment in shown.moments)


def test_a_request_without_an_answer_stands_first(sample_mount: Mounter, tmp_path: Path) -> None:
    """With its time until the recording's end, which follows its workload's."""
    mount = sample_mount(delay=("read=60s",))
    script = (
        f"{WORKLOAD} stat 23 {mount.path}/big; head -c 1 {mount.path}/big >/dev/null 2>&1 &"
        f"{mount.until_in('read')}; sleep 1;"
        f"{sys.executable} -c 'import json, time; print(json.dumps(dict(now=time.monotonic_ns())))'"
    )
    begun = time.monotonic_ns()
    recording, said = record(tmp_path / "perf.data", mount, script)
    end = time.monotonic_ns()
    (asleep,) = (c for c in affairs.calls(mount.ask("calls")) if c.operation == "read")
    mount.process.kill()  # the daemon would answer first
    result = recording.slowest(most=3)
    first = result.requests[0]
    assert (first.operation, first.fate, first.path) == ("read", "unfinished", "big")
    assert said[-1]["now"] - asleep.entered < first.duration_ns < end - begun
    assert sum(ns for _, ns in first.stages) == first.duration_ns
    assert first.meanwhile is not None
    assert [name for name, *_ in first.meanwhile.syscalls] == ["clock_nanosleep"]
    text = " ".join(slow_text(result).split())
    assert "not answered by the end" in text
    assert recording.show(first.unique or 0).moments


CALLERS = 8


def queue_of(
    mount: SampleMount, output: Path, callers: int = CALLERS, count: int = 11, under: str = ""
) -> tuple[Any, float, float]:
    """The mount's queue, and bounds of the share in which its daemon was short of threads.

    The bounds come from stock perf and from the daemon's own list.
    """
    work = f"{under} {WORKLOAD} statfs {count} {mount.path} > /dev/null"
    recording, _ = record(output, mount, " & ".join([work] * callers) + " & wait")
    queue = recording.queue()
    assert not queue.facts.losses.lost
    (found,) = queue.mounts
    stock = Stock(recording.path, mount)
    requests = [seen for seen in stock.seen.values() if seen.callback_enter]
    assert found.requests == len(requests) == callers * count
    assert found.threads == len({seen.tid for seen in requests})
    assert found.waited_ns == sum(seen.read - seen.begin for seen in requests)
    assert found.total_ns == sum(seen.end - seen.begin for seen in requests)
    changes = sorted(c for s in requests for c in ((s.begin, 1), (s.read, -1)))
    assert found.whole.most_queued == max(accumulate(more for _, more in changes))
    # Certainly at work in a callback until its reply, except without a CPU, and asleep in its
    # delays. At most from a request's arrival until the end of the callback.
    calls = own_calls(mount)
    surely, at_most = [], []
    for seen in requests:
        call = calls[seen.connection, seen.unique]
        at = seen.read
        for since, woken, until in sorted(stock.off[seen.tid]):
            if at < until and since < seen.reply:  # ready at that time, without a CPU
                surely.append((at, max(at, woken or since)))
                at = until
        surely.append((at, max(at, seen.reply)))
        asleep = (out for out in stock.off[seen.tid] if overlap(out[::2], span(call)) > 0)
        surely += [
            (max(since, call.after_begin), min(woken or until, call.after_end))
            for since, woken, until in asleep
        ]
        at_most.append((seen.read, seen.callback_return))
    queued = [(seen.begin, seen.read) for seen in requests]
    low, high = (short(queued, busy, found.threads) for busy in (surely, at_most))
    assert low <= found.short_ns <= high
    return found, low / found.total_ns, high / found.total_ns


def span(call: affairs.Call) -> tuple[int, int]:
    """Begin and end of the delay after the reply."""
    return call.after_begin, call.after_end


def short(queued: list[tuple[int, int]], busy: list[tuple[int, int]], threads: int) -> int:
    """Return ns for which requests were queued while that many threads were busy."""
    changes = [(at, 0, more) for times in queued for at, more in zip(times, (1, -1))]
    changes += [(at, more, 0) for times in busy for at, more in zip(times, (1, -1))]
    total = at_work = waiting = last = 0
    for now, work, more in sorted(changes):
        if at_work >= threads:
            total += waiting * (now - last)
        at_work, waiting, last = at_work + work, waiting + more, now
    return total


def test_one_thread_is_too_few_for_eight_callers(sample_mount: Mounter, tmp_path: Path) -> None:
    """The verdict follows from the share, which lies within the bounds on any machine.

    With callbacks of 20 ms, 7 of 8 callers wait for one thread. Less than a quarter of their time
    would be waiting only if each caller was kept from its CPU for 60 ms after each reply. With
    enough threads the share is smaller.
    """
    # On a busy machine the daemon would lack CPUs, too: a verdict of its own.
    first = ["chrt", "--rr"]
    mount = sample_mount("--threads", "1", delay=("statfs=20ms",))
    subprocess.run([*first, "--all-tasks", "--pid", "1", str(mount.pid)], check=True)
    found, low, _ = queue_of(mount, tmp_path / "one.data", under=" ".join([*first, "1"]))
    with_one = found.share_short
    assert found.threads == found.whole.most_busy == 1
    assert low > SHORT
    assert found.verdict[0].code is Code.THREADS_SHORT
    mount.clean()

    mount = sample_mount("--threads", "16", delay=("statfs=20ms",))
    found, _, high = queue_of(mount, tmp_path / "sixteen.data")
    assert found.threads > 1
    assert found.share_short < with_one
    is_short = found.verdict[0].code is Code.THREADS_SHORT
    assert is_short == (found.share_short >= SHORT) and (high >= SHORT or not is_short)
    mount.clean()


def test_one_thread_is_enough_for_one_caller(sample_mount: Mounter, tmp_path: Path) -> None:
    """This also holds if both use the same CPU and the caller preempts the replying thread: the
    thread's time without a CPU is not counted, however long it is."""
    mount = sample_mount("--threads", "1")
    for name, under in (("apart", ""), ("together", " ".join(mount.pin()))):
        found, _, high = queue_of(mount, tmp_path / f"{name}.data", 1, 211, under)
        assert found.whole.most_queued == 1
        # If a virtual CPU is taken from the thread as it leaves its callback, the next request does
        # wait for it.
        if name == "together" or high < SHORT:
            assert found.share_short < SHORT
            assert found.verdict[0].code is not Code.THREADS_SHORT


def test_work_after_the_reply_keeps_a_thread(sample_mount: Mounter, tmp_path: Path) -> None:
    """Each reply is immediate; the next request waits until the thread has finished the previous
    one.

    Each of two callers waits for two such times of 20 ms, minus the L ms that it needs to send
    again, and for twice the R ms that the thread is late: 40 - L of 40 - L + 2 R. That is less than
    a quarter only if 3 L + 2 R > 120: if all were kept from their CPU for 24 ms each time.
    """
    mount = sample_mount("--threads", "1", delay=("statfs=20ms:after",))
    found, low, _ = queue_of(mount, tmp_path / "perf.data", callers=2)
    assert found.whole.most_busy == 1
    assert low > SHORT


def test_the_trace_of_many_callers(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount("--kernel-cache=1")
    recording, _ = record(tmp_path / "perf.data", mount, f"{WORKLOAD} mixed --few {mount.path}")
    path = tmp_path / "trace.pftrace"
    exported = recording.export(str(path), "perfetto")
    trace = perfetto_trace.decode(path)
    stories = Columns(recording.requests())
    assert exported.requests == len(stories.begin_ns) and not exported.stateless
    made = (stories.begin_ns > 0) & (stories.until_ns > 0) & (stories.tid >= 0)
    assert len(trace.of("request")) == int(made.sum())
    served = (stories.read_ns > 0) & (stories.daemon_tid >= 0)
    in_hand = trace.of("daemon")
    assert len(in_hand) == int(served.sum())
    assert {trace.task(one)[0] for one in in_hand} == {mount.pid}
    led = Counter(tuple(one.category for one in flow[:2]) for flow in trace.flows.values())
    assert led["request", "daemon"] == int((made & served).sum())
    callers = {trace.task(one)[1] for one in trace.of("request")}
    assert callers & {trace.task(one)[1] for one in trace.of("blocked")}
