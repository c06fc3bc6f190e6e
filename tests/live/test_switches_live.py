"""A running thread is seen to run: switches by stock perf's own records, made at the same time."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from columns import Columns
from mounts import wait_until
from recording import opened
from sample import BUILD, Mounter

from fusetools.reasons import Code

pytestmark = pytest.mark.live
LINE = re.compile(r"\s(\d+)\s+(\d+)\.(\d{9}):\s+PERF_RECORD_SWITCH\S*\s+(IN|OUT)")


@contextmanager
def switches(directory: Path) -> Iterator[dict[int, list[tuple[int, bool]]]]:
    """Record all switches by stock perf. Return at the end those of each thread: (ns, it runs)."""
    data = directory / "stock.data"
    seen: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    words: list[str | Path] = [
        "perf",
        "record",
        "-a",
        "-k",
        "CLOCK_MONOTONIC",
        "--switch-events",
        "-e",
        "dummy:u",
    ]
    perf = subprocess.Popen(
        [*words, "-o", data, "sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: data.exists() and data.stat().st_size > 0, "stock perf records")
        yield seen
    finally:
        perf.terminate()
        perf.wait()
    words = ["perf", "script", "-i", data, "--show-switch-events", "--ns", "-F", "tid,time"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    for tid, seconds, ns, what in LINE.findall(done.stdout):
        seen[int(tid)].append((int(seconds) * 10**9 + int(ns), what == "IN"))


@pytest.mark.parametrize(("callers", "delay"), [(1, "getattr=300us"), (7, "lookup=100us:spin")])
def test_each_wake_up_is_when_stock_perf_sees_the_caller_run(
    sample_mount: Mounter, tmp_path: Path, callers: int, delay: str
) -> None:
    mount = sample_mount(delay=(delay,))
    work = f"{BUILD / 'workload'} stat 211 {mount.path}/big"
    script = " & ".join([work] * callers) + " & wait"
    with switches(tmp_path) as stock:
        recording = opened(tmp_path / "perf.data", [mount], "sh", "-c", script)
    assert not [why for why in recording.session.missing if why.code is Code.SWITCHES_MISSING]
    stories = Columns(recording.requests())
    waits = stories.waits == 1
    slept = 0
    for tid, end, runs in zip(
        stories.tid[waits], stories.end_ns[waits], stories.runs_ns[waits], strict=True
    ):
        assert runs, "its caller is followed"
        if runs == end:
            continue  # it did not sleep
        slept += 1
        # If the tracepoint reports a switch, the record follows, with no other record between.
        after = next(event for event in stock[int(tid)] if event[0] >= runs)
        before = [event for event in stock[int(tid)] if event[0] < runs][-1]
        assert after[1] and not before[1], (tid, end, runs, before, after)
        assert not [event for event in stock[int(tid)] if end < event[0] < runs and event[1]]
    assert slept > 211 * callers // 2
