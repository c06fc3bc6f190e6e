"""Answers that the kernel refuses, requests that a daemon drops, and a child that serves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from mounts import HANGS, mount_entry
from passed import Passed
from recording import run
from script import needs_perf
from variants import variants

import fusetools
from fusetools.reasons import Code

pytestmark = pytest.mark.live

ANSWERFS = Path(__file__).with_name("answerfs.py")
Recorder = Callable[..., "tuple[Any, list[dict[str, int]]]"]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """Record a shell script on a mount ({m}) whose daemon has these options."""
    mount, output = tmp_path / "mount", tmp_path / "perf.data"
    mount.mkdir()
    started: list[subprocess.Popen[str]] = []

    def end() -> str:
        for how in ("-f", "-l"):  # -f ends the waiting callers
            subprocess.run(["umount", how, mount], check=False, stderr=subprocess.DEVNULL)
        started[0].terminate()
        return started[0].communicate(timeout=HANGS)[0]

    def record(script: str, *options: str) -> tuple[Any, list[dict[str, int]]]:
        needs_perf()
        command = [sys.executable, str(ANSWERFS), str(mount), *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[0].stdout
        first = started[0].stdout.readline()
        assert "ready" in first
        text = script.format(m=mount)
        done = run("record", "--mount", mount, "-o", output, "--", "sh", "-c", text)
        assert output.exists(), done.stderr
        lines = [json.loads(first), *map(json.loads, end().splitlines())]
        return fusetools.open(output), lines

    yield record
    if mount_entry(mount):
        end()


@pytest.mark.parametrize("kind", ["gone", *variants("negative", "positive")])
def test_a_refused_answer_is_named(recorder: Recorder, kind: str) -> None:
    error = "ENOENT" if kind == "gone" else "EINVAL"
    # Not even SIGKILL ends a caller whose request the daemon has read.
    script = "stat {m}/filea & sleep 1; stat {m}/fileb {m}/filec > /dev/null; umount -f {m}; wait"
    recording, lines = recorder(script, "--refuse", kind)
    (logged,) = (line for line in lines if "refused" in line)
    result = recording.errors()
    (refused,) = result.refused
    assert (refused.operation, refused.error, refused.requests) == ("getattr", error, 1)
    assert refused.numbers == (logged["refused"],)
    assert not result.dropped
    (aborted,) = result.aborted
    assert (aborted.by, aborted.comm, aborted.requests) == ("unmount", "umount", 1)
    (request,) = (r for r in recording.slowest().requests if r.refused)
    assert request.aborter == aborted[:3]
    assert request.unique == logged["refused"] and not request.handed
    stages = dict(request.stages)
    # The caller waits for a second; the daemon works for less.
    assert stages["refused"] > 500_000_000 > 10 * stages["daemon"]
    (queue,) = recording.queue().mounts
    assert queue.refused == 1 and queue.whole.most_busy == 1


@pytest.mark.parametrize("kind", ["type", *variants("size")])
def test_refused_content_is_contradicted(recorder: Recorder, kind: str) -> None:
    script = "for i in 1 2 3; do stat {m}/file$i; done; stat {m}/none; true"
    recording, _ = recorder(script, "--content", kind)
    (row,) = recording.errors().contradicted
    assert (row.error, row.operation, row.calls, row.earlier) == ("EIO", "lookup", 3, False)
    (finding,) = [f for f in recording.why().findings if f.reason.code == Code.CONTENT_REFUSED]
    assert finding.reason.subject["operation"] == "lookup" and finding.reason.figures["calls"] == 3


@pytest.fixture
def small(samples: Path, tmp_path: Path) -> Iterator[Passed]:
    """A file system of 1 MiB that is written through the writeback cache."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    passed = None
    try:
        passed = Passed(samples, disk, "--writeback")
        yield passed
    finally:
        if passed:
            passed.clean()
        subprocess.run(["umount", disk], check=True)


def test_errors_of_writes_in_the_background_are_returned_later(
    small: Passed, tmp_path: Path
) -> None:
    needs_perf()
    output = tmp_path / "perf.data"
    script = f"dd if=/dev/zero of={small.path}/f bs=64k count=40; true"
    done = run("record", "--mount", small.path, "-o", output, "--", "sh", "-c", script)
    assert "No space left on device" in done.stderr
    recording = fusetools.open(output)
    (row,) = recording.errors().contradicted
    assert (row.syscall, row.error, row.earlier) == ("close", "ENOSPC", True)
    (finding,) = [f for f in recording.why().findings if f.reason.code == Code.ERRORS_FREQUENT]
    assert finding.reason.subject == {
        "operation": "write",
        "error": "ENOSPC",
        "place": "background",
    }
    failed = {name: n for o in recording.errors().operations for name, n in o.errors}["ENOSPC"]
    waited = sum(o.requests for o in recording.stages("write").operations if o.waits)
    assert failed - waited <= finding.reason.figures["requests"] <= failed


def test_dropped_requests_are_no_work(recorder: Recorder) -> None:
    script = "for i in $(seq 23); do stat {m}/file$i > /dev/null & done; "
    script += "sleep 1; stat {m}/file > /dev/null; umount -f {m}; wait"
    recording, lines = recorder(script, "--drop", "7")
    logged = sorted(line["dropped"] for line in lines if "dropped" in line)
    assert len(logged) == 3
    (dropped,) = recording.errors().dropped
    assert (dropped.operation, sorted(dropped.numbers)) == ("getattr", logged)
    (queue,) = recording.queue().mounts
    assert queue.dropped == 3 and queue.handed == 0 and queue.threads == 1
    assert queue.whole.most_busy == 1
    assert not any(request.handed for request in recording.slowest(most=100).requests)


def test_why_names_who_kept_a_request_until_it_was_sent_again(recorder: Recorder) -> None:
    recording, lines = recorder("stat {m}/file1 {m}/file2 > /dev/null", "--resend")
    (kept,) = (line["dropped"] for line in lines if "dropped" in line)
    (request,) = (r for r in recording.slowest(most=100).requests if r.resent)
    assert (request.unique, request.fate) == (kept, "matched")
    assert request.first_reader == request.daemon_pid == lines[0]["ready"]
    held = request.marks_ns["read"] - request.first_read_ns
    assert held >= 990_000_000  # the second that the daemon waits, which begins after its read
    finding = recording.why().findings[0]
    assert finding.reason.code is Code.RESENT and finding.time_ns == held
    assert finding.reason.subject["pid"] == lines[0]["ready"]
    assert finding.reason.figures["requests"] == 1


def test_the_child_that_serves_is_the_daemon(recorder: Recorder) -> None:
    script = "stat {m}/file1 {m}/file2 {m}/file3 > /dev/null"
    recording, lines = recorder(script, "--child", "--delay", "0.02")
    requests = recording.slowest("lookup").requests
    assert len(requests) == 3
    for request in requests:
        assert request.daemon_pid == lines[0]["ready"]
        assert dict(request.stages)["daemon"] >= 20_000_000
    (queue,) = recording.queue().mounts
    assert (queue.unread, queue.threads) == (0, 1)


@pytest.mark.parametrize("obey", [False, *variants(True)])
def test_interrupts_are_those_that_the_daemon_counts(recorder: Recorder, obey: bool) -> None:
    """A timer interrupts lookups of 30 ms, and later requests of the same call."""
    program = (
        "import os, signal, sys; signal.signal(signal.SIGALRM, lambda *_: None); "
        "signal.setitimer(signal.ITIMER_REAL, 0.005); os.stat(sys.argv[1])"
    )
    once = f'{sys.executable} -c "{program}" {{m}}/file$i'
    script = f"for i in 1 2 3 4 5; do {once}; done; true"
    options = ("--workers", "4", "--delay", "0.03", *(["--obey"] if obey else []))
    recording, lines = recorder(script, *options)
    logged = [line["interrupt"] for line in lines if "interrupt" in line]
    rows = recording.errors().interrupts
    assert sum(row.read for row in rows) == len(logged) >= 5
    (lookups,) = (row for row in rows if row.operation == "lookup")
    assert (lookups.signal, lookups.obeyed) == ("SIGALRM", lookups.read if obey else 0)
    counts = recording.counts("FUSE_")
    assert set(counts.interrupts) == set(rows)
    marked = [r.unique for r in recording.slowest(most=1000).requests if r.interrupted]
    assert sorted(marked) == sorted(logged)
    vain = [f for f in recording.why().findings if f.reason.code is Code.INTERRUPTED]
    assert len(vain) == obey
    if obey:
        requests = recording.slowest(most=1000).requests
        ended = [r for r in requests if r.signals and r.error == "EINTR"]
        assert vain[0].time_ns == sum(r.duration_ns for r in ended)
        assert vain[0].reason.subject["signal"] == "SIGALRM"
