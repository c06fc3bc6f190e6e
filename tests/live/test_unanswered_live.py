"""Reports of commands about a daemon that is stopped, killed, without callbacks, or short of
CPU."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
import script
from mounts import HANGS, mount_entry, wait_until
from recording import run
from sample import Mounter, SampleMount, until
from script import needs_perf

import fusetools
from fusetools.host.files import Files
from fusetools.host.mounts import read_mounts
from fusetools.host.processes import open_files
from fusetools.reasons import Code
from fusetools.results.hist import READ_TO_REPLY

pytestmark = pytest.mark.live

RAWFS = Path(__file__).with_name("rawfs.py")
SLEEPS = {"hrtimer_nanosleep", "__x64_sys_clock_nanosleep", "common_nsleep"}
COMMANDS = ("hist", "count", "stages", "slow", "queue", "errors")


def record(output: Path, mount: Path, script: str, *more: str) -> str:
    """Record a shell script on the mount. Return record's output."""
    needs_perf()
    done = run("record", "--mount", mount, "-o", output, *more, "--", "sh", "-c", script)
    assert output.exists(), done.stderr
    return done.stderr


def closed(mount: SampleMount) -> str:
    """Wait for the releasedir of the listing, for which no caller waits."""
    affairs = f"{mount.samplefs} --talk {mount.socket} internal affairs"
    return until(f"{affairs} | grep -q '^cvmfs.no_open_dirs|0|'")


def said(command: str, path: Path) -> str:
    """The text matches wherever its lines are broken."""
    text = run(*command.split(), "-i", path, check=True, cwd=path.parent).stdout
    return " ".join(text.split())


def test_a_stopped_daemon(sample_mount: Mounter, tmp_path: Path) -> None:
    mount, output = sample_mount(), tmp_path / "perf.data"
    workload = f"ls {mount.path} > /dev/null; {closed(mount)}; {mount.until_stopped()}; "
    workload += f"timeout -s KILL 0.5 stat {mount.path}/etc; true"
    try:
        printed = record(output, mount.path, workload)
    finally:
        os.kill(mount.pid, signal.SIGCONT)
    assert f"the daemon, pid {mount.pid}, was stopped" in printed
    assert "another copy" not in printed
    for command in COMMANDS:
        text = said(command, output)
        assert f"pid {mount.pid}, has been stopped since" in text, command
        assert "1 without an answer" in text, command
    (finding,) = fusetools.open(output).why().findings
    assert finding.reason.fix == f"kill -CONT {mount.pid}"
    assert f"pid {mount.pid}) was stopped by a signal" in finding.reason.why
    slowest = fusetools.open(output).slowest(most=1).requests[0]
    # Return its caller's wait by stock perf: its last system call.
    seen = [e for e in script.events(output) if e.comm == "stat"]
    enter, leave = [e for e in seen if e.name.startswith("raw_syscalls:")][-2:]
    (sent,) = (e for e in seen if e.name == "fuse:fuse_request_send" and "(FUSE_LOOKUP)" in e.text)
    assert slowest.fate == "interrupted" and slowest.duration_ns == leave.time - enter.time
    assert [name for name, _ in slowest.stages][-1] == "queue"
    assert "interrupted, in the queue" in " ".join(said("slow -n 1", output).split())
    (operation,) = (
        o for o in fusetools.open(output).stages(slowest.operation).operations if o.least_ns
    )
    assert operation.max_ns == slowest.duration_ns and operation.unmatched == {"interrupted": 1}
    assert "The daemon has enough threads" not in said("queue", output)
    hist = fusetools.open(output).hist(slowest.operation, layers=("request",)).histograms[0]
    assert hist.unanswered == 1 and hist.max_ns == leave.time - sent.time
    # The same holds in flame graphs: none of it is the daemon's time.
    stacks, text = flame(output, "requests", slowest.operation)
    (stuck,) = (s for s in stacks if ";[interrupted];" in s)
    assert stuck.endswith(f";[FUSE {slowest.operation}];[interrupted];[queue]")
    assert stacks[stuck] == pytest.approx(hist.max_ns / 1000)
    assert "1 without an answer" in text
    callers = fusetools.open(output).stacks("off-cpu", slowest.operation, layers=["syscall"])
    assert (callers.total_ns or 0) > 0.9 * slowest.duration_ns


def test_a_killed_daemon(sample_mount: Mounter, tmp_path: Path) -> None:
    mount, output = sample_mount(), tmp_path / "perf.data"
    workload = f"ls {mount.path} > /dev/null; {closed(mount)}; {mount.until_stopped()}; "
    workload += f"stat {mount.path}/etc & "
    # Wait until the request is made.
    workload += "while ! grep -qs fuse /proc/$!/wchan /proc/$!/stack; do sleep 0.01; "
    workload += "n=$((n + 1)); [ $n -gt 1000 ] && break; done; "
    workload += f"kill -KILL {mount.pid}; wait; stat {mount.path}; stat {mount.path}/etc; true"
    printed = record(output, mount.path, workload)
    assert f"the daemon, pid {mount.pid}, ended during the recording" in printed
    for command in COMMANDS:
        assert f"pid {mount.pid}, ended at" in said(command, output), command
    (aborted,) = (
        r for r in fusetools.open(output).slowest(most=100).requests if r.fate != "matched"
    )
    assert (aborted.fate, aborted.error) == ("aborted", "ECONNABORTED")
    assert "aborted (ECONNABORTED)" in " ".join(said("slow", output).split())
    stacks, _ = flame(output, "requests", aborted.operation)
    within = sum(us for stack, us in stacks.items() if ";[aborted];[queue]" in stack)
    assert within == pytest.approx(dict(aborted.stages)["queue"] / 1000)
    # Both later calls found no daemon; the kernel made no request for them.
    gone = dict(fusetools.open(output).errors().disconnected)
    assert sum(gone.values()) >= 2 and "ENOTCONN" in said("errors", output)
    first = fusetools.open(output).why().findings[0].reason
    assert first.code == Code.DISCONNECTED and first.figures["calls"] == sum(gone.values())
    assert first.fix.startswith(f"umount -l {mount.path} ")


def test_a_daemon_killed_at_work(sample_mount: Mounter, tmp_path: Path) -> None:
    """Its thread sleeps in a callback until then.

    That is no work on a CPU, though the thread ends before the request.
    """
    mount, output = sample_mount("--delay", "lookup=30s"), tmp_path / "perf.data"
    workload = f"stat {mount.path}/etc & "
    workload += f"{mount.until_in('lookup')}; sleep 0.2; kill -KILL {mount.pid}; wait; true"
    record(output, mount.path, workload)
    (aborted,) = (
        r for r in fusetools.open(output).slowest(most=100).requests if r.fate != "matched"
    )
    seen = script.events(output)
    (enter,) = (e for e in seen if e.name == "fuse_daemon:cvmfs_lookup")
    # It may sleep for a moment on its way to the delay, and be woken up while it goes to sleep.
    blocked, since, early = 0, 0, False
    for event in (e for e in seen if e.time > enter.time):
        if event.name == "sched:sched_switch" and event.number("prev_pid") == enter.tid:
            sleeps = "prev_state=R" not in event.text and not early
            since, early = event.time if sleeps else 0, False
        elif event.name == "sched:sched_waking" and event.number("pid") == enter.tid:
            blocked += event.time - since if since else 0
            since, early = 0, not since
    meanwhile = aborted.meanwhile
    assert meanwhile and meanwhile.blocked_ns == blocked >= 200_000_000
    daemon = dict(aborted.stages)["daemon"]
    parts = (meanwhile.runnable_ns, meanwhile.elsewhere_ns, meanwhile.on_cpu_ns)
    assert daemon == meanwhile.blocked_ns + sum(part or 0 for part in parts)
    text = said("slow", output)
    assert "daemon" in text and "(blocked" in text
    (operation,) = fusetools.open(output).stages("lookup").operations
    (stage,) = (stage for stage in operation.stages if stage.name == "daemon")
    assert stage.parts_ns["blocked"] == meanwhile.blocked_ns


def test_a_daemon_that_another_one_follows(sample_mount: Mounter, tmp_path: Path) -> None:
    """It is mounted again on the same path.

    Requests of the new mount are recorded, its callbacks are not, and the output says more than
    "never called".
    """
    mount, output = sample_mount(), tmp_path / "perf.data"
    again = f"{mount.samplefs} --kernel-cache 0 {mount.tree} {mount.path}"
    workload = f"ls {mount.path} > /dev/null; umount -l {mount.path}; {again}; "
    workload += f"cat {mount.path}/dir-00/file-000 > /dev/null"
    try:
        printed = record(output, mount.path, workload)
        files = Files(Path("/"))
        (entry,) = (m for m in read_mounts(files, open_files(files)) if m.path == str(mount.path))
    finally:
        subprocess.run(["umount", mount.path], check=True)
    follows = f"pid {entry.daemon_pid} answers {mount.path} since: its callbacks were not recorded"
    assert f"the daemon, pid {mount.pid}, ended during the recording" in printed
    assert entry.daemon_pid != mount.pid and f"warning: {follows}" in " ".join(printed.split())
    assert follows in said("count", output)
    counts = {row.function: row.count for row in fusetools.open(output).counts().counts}
    assert counts["FUSE_READ"] > 0 == counts["cvmfs_read"]


def test_a_daemon_killed_while_nothing_waits_for_it(sample_mount: Mounter, tmp_path: Path) -> None:
    """All requests have been answered, and no new one is made: each command gives the reason."""
    mount, output = sample_mount(), tmp_path / "perf.data"
    workload = f"ls {mount.path} > /dev/null; {closed(mount)}; kill -KILL {mount.pid}; "
    # It is a child of this process, which does not reap it meanwhile. Its first thread may be a
    # zombie while others still have the connection open.
    process = f"/proc/{mount.pid}"
    gone = f"grep -qs '^State:.Z' {process}/status && test $(ls {process}/task) = {mount.pid}"
    workload += f"{until(gone)}; stat {mount.path}; true"
    record(output, mount.path, workload)
    page = tmp_path / "report.html"
    run("report", output, "-o", page, check=True)
    ended = f"pid {mount.pid}, ended"
    assert ended in page.read_text()
    unique = fusetools.open(output).slowest(most=1).requests[0].unique
    for command in (*COMMANDS, f"show {unique}", "flame --offcpu"):
        assert ended in said(command, output), command
    assert fusetools.open(output).counts().facts.requests.unanswered == 0


def flame(path: Path, graph: str, *operations: str) -> tuple[dict[str, float], str]:
    """Return us by stack, and `fusetools flame`'s output."""
    option = "--" + graph.replace("-", "")
    picture = path.with_suffix(".html")
    text = said(" ".join(["flame", option, *operations, "-o", str(picture)]), path)
    return fusetools.open(path).stacks(graph, *operations).stacks, text


class RawMount:
    def __init__(self, path: Path, *arguments: object) -> None:
        self.path = path
        words = [sys.executable, RAWFS, path, *arguments]
        self.process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline().split()[1])
        wait_until(lambda: mount_entry(path) is not None, "the mount")

    def end(self) -> dict[str, int]:
        """Return the number of its answers since mount."""
        self.process.terminate()
        text, _ = self.process.communicate(timeout=HANGS)
        answered: dict[str, int] = json.loads(text)
        return answered


RawMounter = Callable[..., RawMount]


@pytest.fixture
def raw_mount(samples: Path, tmp_path: Path) -> Iterator[RawMounter]:
    mounts: list[RawMount] = []

    def mount(*arguments: object) -> RawMount:
        path = tmp_path / f"raw{len(mounts)}"
        path.mkdir()
        mounts.append(RawMount(path, *arguments))
        return mounts[-1]

    yield mount
    for one in mounts:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        if mount_entry(one.path):
            subprocess.run(["umount", "-l", one.path], check=True)


@pytest.mark.parametrize("workers", [0, 3])
def test_a_daemon_without_callbacks(raw_mount: RawMounter, tmp_path: Path, workers: int) -> None:
    delay = 20_000_000
    mount = raw_mount("--workers", workers, "--delay", delay / 1e9)
    output = tmp_path / "perf.data"
    names = " ".join(f"{mount.path}/file{n}" for n in range(7))
    record(output, mount.path, f"stat {names} > /dev/null; stat {mount.path}/none; true")
    answered = mount.end()
    recording = fusetools.open(output)
    # Compare with the daemon's own count; the recording lacks only its mount.
    requests = {h.operation: h for h in recording.hist(layers=("request",)).histograms}
    windows = {h.operation: h for h in recording.hist(layers=("daemon",)).histograms}
    assert requests["lookup"].count == answered["lookup"] == 8
    assert {h.function for h in windows.values()} == {READ_TO_REPLY}
    for operation, window in windows.items():
        assert (window.count, window.unmatched) == (requests[operation].count, 0), operation
    # The delay lies between the read and the reply, in every command.
    assert (windows["lookup"].min_ns or 0) >= delay
    (stages,) = recording.stages("lookup").operations
    daemon = next(stage for stage in stages.stages if stage.name == "daemon")
    assert daemon.requests == 8 and daemon.total_ns >= 8 * delay
    assert all("dispatch" not in stage.name for stage in stages.stages)
    slowest = recording.slowest("lookup").requests
    assert all(dict(r.stages)["daemon"] >= delay for r in slowest)
    assert {r.handed for r in slowest} == {workers > 0}
    if not workers:  # one thread reads, sleeps and answers
        assert daemon.parts_ns["blocked"] >= 8 * delay
    for graph in ("requests", "off-cpu", "off-wake"):
        stacks, _ = flame(output, graph, "lookup")
        daemons = [s for s in stacks if not s.startswith("stat;") or ";[daemon];" in s]
        asleep = sum(stacks[s] for s in daemons if SLEEPS & set(s.split(";")))
        assert asleep * 1000 >= 7.5 * delay, graph  # except the code before and after the sleep
        assert not any(s.endswith(";fuse_dev_do_read;schedule;__schedule") for s in daemons)
    (queue,) = recording.queue().mounts
    assert queue.handed == (queue.requests if workers else 0) and queue.unread == 0
    text = said("queue", output)
    assert "max_threads" not in text
    assert ("cannot be known" in text) is (workers > 0)


@pytest.mark.parametrize("workers", [0, 3])
def test_a_daemon_that_does_not_answer(raw_mount: RawMounter, tmp_path: Path, workers: int) -> None:
    """Its request lasts until the recording's end; a thread that reads again no longer has it."""
    mount = raw_mount("--workers", workers, "--delay", 20)
    output = tmp_path / "perf.data"
    made = until("grep -qs fuse /proc/$!/wchan /proc/$!/stack")
    # It is left behind, and ends with the mount: nobody waits for its output.
    record(output, mount.path, f"stat {mount.path}/file0 > /dev/null 2>&1 & {made}; sleep 0.5")
    for command in (*COMMANDS, "flame --offcpu"):
        assert "1 without an answer" in said(command, output), command
    recording = fusetools.open(output)
    (request,) = recording.slowest("lookup").requests
    assert request.fate == "unfinished" and request.duration_ns > 300_000_000
    stacks, text = flame(output, "requests", "lookup")
    assert sum(stacks.values()) * 1000 == pytest.approx(request.duration_ns, rel=1e-3)
    assert all(";[FUSE lookup];[unfinished];" in stack for stack in stacks)
    assert "1 without an answer" in text
    asleep = sum(us for s, us in stacks.items() if ";[daemon];" in s and SLEEPS & set(s.split(";")))
    unknown = sum(us for s, us in stacks.items() if s.endswith(";[daemon, thread unknown]"))
    ran = sum(us for s, us in stacks.items() if s.endswith(";[on CPU]"))
    longest = unknown if workers else asleep
    assert longest * 1000 > 0.9 * request.duration_ns > 10_000 * ran, stacks
    text = " ".join(said("slow", output).split())
    assert request.handed is (workers > 0)
    if workers:
        who = (
            f"the daemon's thread {request.reader} read it, which threads worked on it is not known"
        )
        assert request.reader is not None and request.replier is None and who in text, text
    else:
        assert "is not known" not in text and request.reader == request.daemon_tid
        off = recording.stacks("off-cpu", "lookup", layers=["daemon"])
        assert (off.total_ns or 0) > 0.9 * request.duration_ns


@contextlib.contextmanager
def quota(pid: int, us: int) -> Iterator[Path]:
    """Put the process into a cgroup with that much CPU time per 100 ms."""
    first, second = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    name = f"fusetools-test-{os.getpid()}"
    if (first / "cpu.cfs_quota_us").exists() or (first / "cgroup.procs").exists():
        group, limit, value = first / name, "cpu.cfs_quota_us", str(us)
    elif "cpu" in (second / "cgroup.subtree_control").read_text().split():
        group, limit, value = second / name, "cpu.max", f"{us} 100000"
    else:
        pytest.skip("no cgroup with a CPU controller can be made here")
    before = Path(f"/proc/{pid}/cgroup").read_text()
    group.mkdir()
    try:
        (group / limit).write_text(value)
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        assert before is not None
        parent = group.parent / "cgroup.procs"
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for left in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    parent.write_text(left)
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.01)


def test_a_throttled_daemon(sample_mount: Mounter, tmp_path: Path) -> None:
    mount, output = sample_mount(), tmp_path / "perf.data"
    with quota(mount.pid, 10_000) as group:
        # Enough calls to exceed the quota many times.
        printed = record(output, mount.path, f"ls -lR {mount.path} > /dev/null")
        cpu = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    assert int(cpu["nr_throttled"]) > 0
    facts = fusetools.open(output).stages().facts
    (throttled,) = (t for t in facts.throttled if t.cgroup == str(group))
    assert throttled.whose == "daemon" and 0 < throttled.times <= int(cpu["nr_throttled"])
    for text in (printed, *(said(command, output) for command in (*COMMANDS, "flame --offcpu"))):
        assert f"the daemon was throttled {throttled.times:,} time" in text
        assert str(group) in text
    # It had a CPU only within its quota: the rest is waiting for one.
    (queue,) = fusetools.open(output).queue().mounts
    assert queue.runnable_ns > 0
