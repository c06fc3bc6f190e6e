"""Daemons that speak FUSE over io_uring, and files that the kernel reads for them (passthrough).

The independent source is the daemon (tests/filesystems/daemons/uringfs.c): it counts its answers by
ring, and each lookup sleeps for a delay in its function slow_lookup.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import mounts
import numpy as np
import pytest
from columns import Columns
from mounts import mount_entry, wait_until
from recording import printed, recorded, run
from variants import variants

import fusetools
from fusetools.core import OPCODES

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]

SOURCE = Path(__file__).parents[1] / "filesystems" / "daemons" / "uringfs.c"
ENABLED = Path("/sys/module/fuse/parameters/enable_uring")
DELAY = 3  # ms
CALLERS, EACH = 5, 12
# Run callers that look up names at the same time.
WORK = f"""
import os, sys, threading
def look(caller):
    for n in range({EACH}):
        os.stat(f"{{sys.argv[1]}}/file{{100 * caller + n}}")
callers = [threading.Thread(target=look, args=(n,)) for n in range({CALLERS})]
for caller in callers: caller.start()
for caller in callers: caller.join()
"""
WAIT = "io_cqring_wait"


@pytest.fixture(scope="session")
def uringfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not ENABLED.exists():
        pytest.skip("this kernel has no FUSE over io_uring (Linux 6.14)")
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    program = tmp_path_factory.mktemp("uringfs") / "uringfs"
    flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, "-o", program, SOURCE], check=True)
    return program


class RingMount:
    def __init__(self, program: Path, path: Path, *options: object) -> None:
        self.path = path
        path.mkdir()
        self.process = subprocess.Popen(
            [program, *map(str, options), path],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=mounts.end_with_the_test,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"ready {self.process.pid}\n"

    def end(self) -> tuple[Counter[str], Counter[str]]:
        """Return the numbers of its answers since mount: by its rings, and by the device."""
        self.process.terminate()
        text, _ = self.process.communicate(timeout=mounts.HANGS)
        counts = json.loads(text)
        ring, device = (
            Counter({OPCODES[int(opcode)]: n for opcode, n in counts[way].items()})
            for way in ("ring", "device")
        )
        return ring, device


RingMounter = Callable[..., RingMount]


@pytest.fixture
def ring_mount(uringfs: Path, tmp_path: Path) -> Iterator[RingMounter]:
    before = ENABLED.read_text()
    ENABLED.write_text("Y")
    made: list[RingMount] = []

    def mount(*options: object) -> RingMount:
        made.append(RingMount(uringfs, tmp_path / f"rings{len(made)}", *options))
        return made[-1]

    yield mount
    ENABLED.write_text(before)
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        if mount_entry(one.path):
            subprocess.run(["umount", "-l", one.path], check=True)


def operations(stories: Columns) -> Counter[str]:
    return Counter(stories.operation.tolist())


def folded(data: Path, graph: str) -> dict[str, float]:
    """Return us by stack."""
    output = data.with_suffix(f".{graph}.folded")
    printed("flame", f"--{graph}", "-i", data, "-o", output)
    rows = (line.rsplit(" ", 1) for line in output.read_text().splitlines())
    return {stack: float(us) for stack, us in rows}


def idle(stacks: dict[str, float]) -> list[str]:
    """Return the stacks of a thread that sleeps for its ring.

    A thread that copies a request there may be preempted.
    """
    return [stack for stack in stacks if WAIT in stack and not stack.endswith("[preempted]")]


@pytest.mark.parametrize("mode", ["", "--workers=4", *variants("--batch")])
def test_requests_by_rings(ring_mount: RingMounter, tmp_path: Path, mode: str) -> None:
    """Replies: each immediately; those of a ring together; by other threads than the readers."""
    mount, data = ring_mount("--delay", DELAY, "--depth", 8, *mode.split()), tmp_path / "perf.data"
    recorded(data, "--mount", mount.path, "--", sys.executable, "-c", WORK, mount.path)
    ring, device = mount.end()
    recording = fusetools.open(data)
    stories = Columns(recording.requests())

    # Another program's look at all mounts (statfs) does not belong to the workload.
    assert device == {"init": 1}
    found = operations(stories)
    for counts in (found, ring):
        counts.pop("statfs", None)
    lookups = CALLERS * EACH
    assert found == ring == {"lookup": lookups, "getattr": lookups}
    assert stories.fated("matched").all()
    assert stories.ring.all()

    # Each request was taken after it had begun and before it was answered.
    marks = (stories.begin_ns, stories.read_ns, stories.reply_ns, stories.end_ns)
    for earlier, later in zip(marks, marks[1:]):
        assert (earlier > 0).all() and (earlier <= later).all()
    asleep = DELAY * 1_000_000
    lookup = stories.of("lookup")
    assert ((stories.reply_ns - stories.read_ns)[lookup] >= asleep).all()

    # The daemon slept that long for these requests in total, and not while it waited for the next
    # one.
    stacks = folded(data, "offcpu")
    # (A sleep begins before its thread has left the CPU; a new entry in its ring interrupts it.)
    sleeps = {stack: us for stack, us in stacks.items() if "nanosleep" in stack}
    assert sum(sleeps.values()) >= 0.8 * lookups * DELAY * 1000
    assert any(";slow_lookup;" in stack for stack in sleeps)
    assert not idle(stacks)
    shown = folded(data, "requests")
    assert any("[FUSE lookup];[daemon];" in s and ";slow_lookup;" in s for s in shown)
    assert not idle(shown)

    (stages,) = recording.stages("lookup").operations
    assert (stages.ring, stages.handed) == (lookups, lookups if "workers" in mode else 0)
    if "workers" in mode:
        return
    daemon = next(stage for stage in stages.stages if stage.name == "daemon")
    assert daemon.requests == lookups and daemon.total_ns >= lookups * asleep
    assert (stories.blocked_ns[lookup] + stories.runnable_ns[lookup] >= 0.8 * asleep).all()
    if mode:
        return
    # Its thread handles one after the other: entries in the ring wait in the queue meanwhile.
    for tid in set(stories.daemon_tid):
        own = stories.daemon_tid == tid
        order = np.argsort(stories.read_ns[own])
        assert (stories.reply_ns[own][order][:-1] <= stories.read_ns[own][order][1:]).all()
    (queue,) = recording.queue().mounts
    assert queue.ring == queue.requests and queue.by_ring and not queue.handed
    slow = recording.slowest("lookup", most=1).requests[0]
    assert slow.meanwhile is not None
    assert slow.meanwhile.syscalls[0][0] in ("clock_nanosleep", "restart_syscall")


SIGNALLED = f"""
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.004, 0.004)
for n in range({EACH}):
    os.stat(f"{{sys.argv[1]}}/file{{n}}")
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_interrupts_of_requests_in_rings(ring_mount: RingMounter, tmp_path: Path) -> None:
    """Requests come by rings, their INTERRUPTs by the device: the daemon counts those it reads."""
    mount, data = ring_mount("--delay", 20), tmp_path / "perf.data"
    recorded(data, "--mount", mount.path, "--", sys.executable, "-c", SIGNALLED, mount.path)
    ring, device = mount.end()
    assert ring["lookup"] == EACH
    rows = fusetools.open(data).errors().interrupts
    lookups = sum(row.requests for row in rows if row.operation == "lookup")
    assert EACH // 2 <= lookups <= EACH
    assert sum(row.read for row in rows) == device["interrupt"]
    assert not sum(row.obeyed for row in rows)


def test_rings_that_never_answer_are_named(ring_mount: RingMounter) -> None:
    """Other rings' threads, which wait for requests, do not count."""
    mount = ring_mount()

    def stuck() -> dict[str, Any]:
        (found,) = json.loads(run("stuck", "--json", "--mount", mount.path).stdout)["mounts"]
        return dict(found)

    assert stuck()["causes"] == []
    caller = subprocess.Popen(["stat", mount.path / "hang"], stderr=subprocess.DEVNULL)
    tasks = Path(f"/proc/{mount.process.pid}/task")

    def asleep() -> list[int]:
        return [int(t.name) for t in tasks.iterdir() if "nanosleep" in (t / "wchan").read_text()]

    try:
        wait_until(lambda: bool(asleep()), "the lookup")
        (tid,) = asleep()
        wait_until(lambda: bool(stuck()["causes"]), "a cause")
        found = stuck()
        (cause,) = found["causes"]
        assert cause["kind"] == "sleep" and f"thread {tid})" in cause["text"]
        rings = [one for one in found["threads"] if one["comm"].startswith("uringfs-")]
        waits = [one["waits"] for one in rings if one["tid"] != tid]
        assert waits and all("for its next request" in what for what in waits)
    finally:
        mount.process.kill()
        caller.wait(mounts.HANGS)


def test_files_that_the_kernel_reads_itself(ring_mount: RingMounter, tmp_path: Path) -> None:
    """Reads of these files make no request: the recording has exactly the other file's requests."""
    backing, data = tmp_path / "backing", tmp_path / "perf.data"
    backing.write_bytes(bytes(range(256)) * 4096)
    mount = ring_mount("--passthrough", backing)
    script = f"cmp {mount.path}/file0 {backing} && cat {mount.path}/file1 > /dev/null"
    recorded(data, "--mount", mount.path, "--", "sh", "-c", script)
    ring, _ = mount.end()
    recording = fusetools.open(data)
    stories = Columns(recording.requests())
    found = operations(stories)
    ring.pop("statfs", None)
    found.pop("statfs", None)
    assert found == ring and found["open"] == found["release"] == 2
    (hist,) = recording.hist("read", layers=("request",)).histograms
    assert hist.count == ring["read"]
    # With a ring, the kernel's tracepoint does not show the length of the answer.
    assert stories.request_bytes.all() and not stories.reply_bytes.any()
