"""The sample client as shipped: without frame pointers, with downloads in another thread."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from recording import recorded, run
from sample import BUILD, Mounter, SampleMount, SlowServer

import fusetools
from fusetools.reasons import Code
from fusetools.recording import Recording
from fusetools.results.flame import Stacks

pytestmark = pytest.mark.live
FETCH = ["cvmfs::cvmfs_read", "cvmfs::Fetcher::Fetch", "download::DownloadManager::Fetch"]
READS = 61


def record(mount: SampleMount, path: Path, *options: str) -> Recording:
    """Record READS reads with these options; each read needs a download."""
    files = sorted((mount.path / "dir-00").glob("file-*"))[:7]
    workload = (BUILD / "workload", "read", READS, *files)
    recorded(path, "--mount", mount.path, *options, "--", *workload)
    return fusetools.open(path)


@pytest.fixture
def client(sample_mount: Mounter, slow_server: Callable[..., SlowServer]) -> SampleMount:
    server = slow_server("--delay", "9ms")
    return sample_mount(f"--download=read={server.port}", as_shipped=True)


def in_order(stack: str, names: list[str]) -> bool:
    frames = iter(stack.split(";"))
    return all(name in frames for name in names)


def waits_in_fetch(shown: Stacks) -> dict[str, float]:
    """Return the stacks of waits for a download. That of a preempted thread is not copied."""
    waits = {s: us for s, us in shown.stacks.items() if not s.endswith(";[preempted]")}
    return {s: us for s, us in waits.items() if FETCH[-1] in s.split(";")}


def test_stacks_are_whole_by_default(client: SampleMount, tmp_path: Path) -> None:
    before = client.counters()["samplefs.ns_download_read"]
    recording = record(client, tmp_path / "perf.data")
    counters = client.counters()
    shown = recording.stacks("off-cpu", layers=["daemon"])
    assert counters["samplefs.n_download_read"] >= READS
    assert shown.cut_ns is not None and shown.cut_ns <= 0.05 * (shown.total_ns or 0)
    # The callers' stacks are not copied, and are listed separately.
    notes = recording.stacks("off-cpu").notes
    (note,) = [note for note in notes if note.code is Code.STACKS_CUT]
    assert note.figures["daemon_share"] <= 0.05 < note.figures["time_share"], note

    # If the host has symbols of its C library: clone3 and start_thread.
    begun = sum(
        us
        for stack, us in shown.stacks.items()
        if stack.startswith(("samplefs;clone", "samplefs;__clone", "samplefs;[libc"))
    )
    assert begun >= 0.95 * sum(shown.stacks.values())

    # Every wait for a download is recorded, and so is the time that the daemon reports for it.
    fetching = waits_in_fetch(shown)
    assert all(in_order(stack, FETCH) for stack in fetching), list(fetching)
    waited = (counters["samplefs.ns_download_read"] - before) / 1000
    assert 0.95 * waited < sum(fetching.values()) < waited
    conditions = [stack for stack in shown.stacks if ";pthread_cond_wait" in stack]
    assert conditions and all(FETCH[0] in stack.split(";") for stack in conditions)


def test_waits_for_the_next_request_are_not_copied(client: SampleMount, tmp_path: Path) -> None:
    """Copies of all stacks overran perf's buffers: 25,000 requests per second make as many
    waits."""
    path = tmp_path / "perf.data"
    workload = (BUILD / "workload", "stat", "2003", client.path / "dir-00" / "file-000")
    done = recorded(path, "--mount", client.path, "--", *workload)
    assert "none lost" in done.stderr, done.stderr
    recording = fusetools.open(path)
    shown = recording.stacks("off-cpu", layers=["daemon"], everything=True)
    idle = {s: us for s, us in shown.stacks.items() if ";fuse_dev_do_read" in s}
    assert idle
    # A copied stack reaches the start of its thread.
    assert not any(";start_thread;" in stack for stack in idle), list(idle)


def test_stock_perf_shows_the_same(client: SampleMount, tmp_path: Path) -> None:
    """A copied stack becomes an ordinary call chain that includes the callback."""
    path = tmp_path / "perf.data"
    record(client, path)
    evlist = subprocess.run(["perf", "evlist", "-v", "-i", path], capture_output=True, text=True)
    assert "STACK_USER" not in evlist.stdout
    command: list[str | Path] = ["perf", "script", "-i", path, "--no-inline", "-F", "event,ip,sym"]
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fetching = [block for block in script.split("\n\n") if "DownloadManager::Fetch" in block]
    # Stacks of samples on the CPU and of preempted threads are not copied.
    waits = [block for block in fetching if "pthread_cond_wait" in block]
    assert len(waits) >= READS
    assert all("cvmfs_read" in block and "stub_read" in block for block in waits)


def test_slow_names_the_thread_that_ended_a_download(client: SampleMount, tmp_path: Path) -> None:
    recording = record(client, tmp_path / "perf.data", "--wakers")
    shown = recording.stacks("off-wake", layers=["daemon"])
    fetching = waits_in_fetch(shown)
    by_thread = {
        stack: us
        for stack, us in fetching.items()
        if "download::DownloadManager::MainDownload" in stack.partition(";--;")[2].split(";")
    }
    assert sum(by_thread.values()) > 0.95 * sum(fetching.values()) > 0


def test_slow_names_the_thread_that_downloads(
    sample_mount: Mounter, slow_server: Callable[..., SlowServer], tmp_path: Path
) -> None:
    """slow shows that it waited for the server: its output suffices to find the cause."""
    server = slow_server("--delay", "9ms")
    client = sample_mount(f"--download=read={server.port}", as_shipped=True)
    recording = record(client, tmp_path / "perf.data")
    reads = recording.slowest("read", most=READS).requests
    assert len(reads) == READS
    main = set()
    polled = waited = 0
    for request in reads:
        assert request.meanwhile is not None
        helper = request.meanwhile.helpers[0]
        main.add(helper.tid)
        assert helper.tid != request.daemon_tid
        assert helper.start_function == "MainDownload"
        assert Path(f"/proc/{client.pid}/task/{helper.tid}").exists()
        assert helper.peers == (f"127.0.0.1:{server.port}",)
        calls = {name: ns for name, _, ns in helper.syscalls}
        assert calls["poll"] <= helper.waited_ns <= request.duration_ns
        polled += calls["poll"]
        waited += helper.waited_ns
    assert len(main) == 1
    # The server delays its answer much longer than everything else takes
    assert polled > 0.5 * waited
    text = run("slow", "read", "-n", "1", "-i", recording.path).stdout
    said = " ".join(text.split())
    (tid,) = main
    assert re.search(rf"for thread {tid} \(MainDownload(: [^)]*)?\), which called poll", said)
    unique = reads[0].unique
    assert unique is not None
    did = [moment.daemon for moment in recording.show(unique).moments]
    assert f"is woken by thread {tid} (MainDownload)" in did
    assert f"connected to 127.0.0.1:{server.port}" in said


def test_stacks_that_are_deeper_than_what_is_copied(client: SampleMount, tmp_path: Path) -> None:
    """Copied stacks are listed separately from incomplete ones; the named fix completes those."""
    path = tmp_path / "perf.data"
    shown = record(client, path, "--call-graph", "auto,1024").stacks("off-cpu", layers=["daemon"])
    assert shown.cut_ns is not None and shown.cut_ns > 0.9 * (shown.total_ns or 0)
    (note,) = [note for note in shown.notes if note.code is Code.STACKS_TOO_DEEP]
    assert note.figures["copied_bytes"] == 1024 and note.figures["time_share"] > 0.9, note
    assert note.fix == "fusetools record --call-graph auto,4096 -- WORKLOAD"
    shown = record(client, path, "--call-graph", "auto,4096").stacks("off-cpu", layers=["daemon"])
    assert shown.cut_ns is not None and shown.cut_ns <= 0.05 * (shown.total_ns or 0)
    assert Code.STACKS_TOO_DEEP not in {note.code for note in shown.notes}


def test_cut_stacks_are_named(client: SampleMount, tmp_path: Path) -> None:
    """With frame pointers these stacks end in the C library; flame reports that, and the fix."""
    path = tmp_path / "perf.data"
    shown = record(client, path, "--call-graph", "fp").stacks("off-cpu", layers=["daemon"])
    assert shown.cut_ns is not None and shown.cut_ns > 0.9 * (shown.total_ns or 0)
    (note,) = [note for note in shown.notes if note.code is Code.STACKS_CUT]
    assert note.fix == "fusetools record --call-graph dwarf -- WORKLOAD"
    flame = ("flame", "--offcpu", "--layer", "daemon", "-i", path, "-o", tmp_path / "x.svg")
    figures = json.loads(run(*flame, "--json", check=True).stdout)
    assert figures["cut_ns"] == shown.cut_ns
