"""`fusetools record --flight` and `fusetools snap` on this host, beside the daemon's own calls."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import affairs
import pytest
from left import own_probes
from mounts import HANGS, wait_until
from recording import COMMAND, HURRIED, children, session, start
from sample import Mounter, SampleMount
from schemas import held
from script import events

import fusetools

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_no_file", "leaves_nothing")]

# A longer run of each (docs/design/flight-recorder.md).
TRIES = int(os.environ.get("FUSETOOLS_FLIGHT_TRIES", "1"))
SNAPS = int(os.environ.get("FUSETOOLS_FLIGHT_SNAPS", "5"))
FLAT = 3 << 20  # bytes between the minimum and the maximum size, once a fifth is written
FULL = 3000  # calls of 0.5 ms, whose events fill buffers of 4 MiB on two CPUs several times
F_SETPIPE_SZ = 1031  # fcntl's from Python 3.10 on


@contextlib.contextmanager
def flight(
    directory: Path, *arguments: object, command: Sequence[str] = COMMAND
) -> Iterator[subprocess.Popen[str]]:
    """An armed flight recorder, whose JSON lines come on its standard output."""
    process = start(directory, "--json", *arguments, command=command)
    try:
        armed(process)
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=HANGS)
    finally:
        if process.poll() is None:  # or the next test would wait for it
            process.kill()
            process.communicate()
        if process.returncode < 0:
            subprocess.run([*COMMAND, "clean"], check=True, timeout=HANGS)


def armed(process: subprocess.Popen[str]) -> str:
    """Return its output until it records."""
    lines = [""]
    assert process.stderr is not None
    while not lines[-1].startswith("fusetools: flight recorder: "):
        lines.append(next_line(process, process.stderr))
        assert lines[-1], f"it did not begin: {''.join(lines)}"
    return "".join(lines)


def next_line(process: subprocess.Popen[str], stream: IO[str]) -> str:
    """Return the next line; "" if the recorder ended. End it if no line comes."""
    timer = threading.Timer(HANGS, process.kill)
    timer.start()
    try:
        return stream.readline()
    finally:
        timer.cancel()


def ended(process: subprocess.Popen[str]) -> str:
    """Return the rest of its standard error."""
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=HANGS)[1]
    assert process.returncode == 0, said
    return said


def written(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next recording that it reports."""
    assert process.stdout is not None
    line = next_line(process, process.stdout)
    assert line, "no recording was written"
    return held("snap", line)


def pass_by(seconds: float) -> None:
    """Wait for buffers to fill up."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, "time to pass")


def fill_buffers(mount: SampleMount) -> None:
    full = sum(mount.callbacks().values()) + FULL
    wait_until(lambda: sum(mount.callbacks().values()) > full, "buffers that are full")


def snap() -> Path:
    done = run("snap")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def run(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS, cwd=cwd)


@contextlib.contextmanager
def load(mount: SampleMount, what: str = "stat 97 {}/dir-00/file-000") -> Iterator[None]:
    process = mount.busy(what)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANGS)


def entries(data: Path) -> dict[int, int]:
    """Return times of the daemon's calls by request, as stock perf prints them."""
    return {
        event.number("unique"): event.time
        for event in events(data)
        if event.name.startswith("fuse_daemon:cvmfs_") and not event.name.endswith("__return")
    }


def hold_to_daemon(data: Path, mount: SampleMount) -> int:
    """Between the first and the last recorded call, no call of the daemon is missing."""
    recorded = entries(data)
    own = {call.unique: call for call in affairs.calls(mount.ask("calls"))}
    first, last = min(recorded.values()), max(recorded.values())
    assert min(recorded, key=recorded.__getitem__) in own, "the daemon's list begins later"
    # The daemon takes its time in the call, shortly after the probe.
    expected = {n for n, call in own.items() if first < call.entered <= last}
    known = {n for n in recorded if n in own}
    assert expected <= known
    assert len(known - expected) <= 8  # entered before the last one's probe, noted after it
    return len(expected)


def hold_to_stock(data: Path) -> None:
    """Counts equal those of stock perf."""
    stock = Counter(event.name for event in events(data))
    with_ends = {f"fuse_daemon:{c.function}": c.count for c in fusetools.open(data).counts().counts}
    for name, count in with_ends.items():
        if name.startswith("fuse_daemon:cvmfs_"):
            assert count == stock[name], name
    assert any(count for name, count in with_ends.items() if name.startswith("fuse_daemon:cvmfs_"))


def quiet(data: Path) -> None:
    """A missing begin is not an error."""
    for command in (("hist",), ("count",), ("stages",), ("queue",), ("errors",), ("slow",)):
        done = run(*command, "-i", data)
        assert done.returncode == 0, done.stderr
        assert "; 0 lost events" in " ".join(done.stdout.split())
        if command[0] in ("hist", "count"):
            assert "; 0 unmatched calls; " in done.stdout


def test_it_holds_the_request_that_set_it_off(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(delay=("open=700ms",))
    arguments = ("--mount", mount.path, "--flight", 2, "--when", "open > 300ms", "--keep", 2)
    with flight(tmp_path, *arguments) as process:
        for _ in range(TRIES):
            pass_by(4.5)  # a rest, after which the next recording is not delayed
            file = mount.path / "dir-00" / "file-001"
            cat = subprocess.Popen(["cat", file], stdout=subprocess.DEVNULL)
            told = written(process)
            cat.wait(HANGS)
            assert re.match(r"open > 300ms: open of cat \(pid \d+\) ", told["why"])
            (slowest,) = fusetools.open(told["output"]).slowest("open", most=1).requests
            assert (slowest.operation, slowest.pid) == ("open", cat.pid)
            account = held("stuck", Path(told["account"]).read_text())
            assert any(one["path"] == str(mount.path) for one in account["mounts"])
        ended(process)
    assert len(list(tmp_path.glob("perf.data.*Z*"))) == 2 * min(TRIES, 2)


def test_the_buffers_hold_complete_requests(sample_mount: Mounter, tmp_path: Path) -> None:
    """Two CPUs' buffers begin at different times, and both were overwritten long ago."""
    # However long writing a recording takes, the daemon's list covers its time.
    mount = sample_mount(delay=("lookup=500us", "getattr=500us"))
    arguments = ("--mount", mount.path, "--flight", 20, "--buffer", "4M")
    with flight(tmp_path, *arguments) as process, load(mount):
        data = []
        for _ in range(2):
            fill_buffers(mount)
            data.append(snap())
            assert hold_to_daemon(data[-1], mount) > 100
        said = ended(process)
    assert said.count("the buffers of 4M were full (20.0 s were wanted)") == 2
    (seconds, wanted, fix) = re.findall(
        r"earlier than ([\d.]+) (m?s) before[^\n]*\n +fix: fusetools record (\S+ \S+ \S+ \S+)", said
    )[0]
    assert re.match(r"--flight 20 --buffer \d+[MG]", fix), fix
    assert wanted == "ms" or float(seconds) < 20
    for one in data:
        hold_to_stock(one)
        quiet(one)


def test_buffers_hold_the_requested_seconds(sample_mount: Mounter, tmp_path: Path) -> None:
    # However fast the machine is, the events of a second fit into the buffers.
    mount = sample_mount(delay=("lookup=500us", "getattr=500us"))
    with (
        flight(tmp_path, "--mount", mount.path, "--flight", 1, "--buffer", "64M") as process,
        load(mount),
    ):
        pass_by(2.5)  # more than requested
        process.send_signal(signal.SIGUSR1)
        told = written(process)
    assert told["why"] == "signal SIGUSR1" and told["lost"] == 0
    data = Path(told["output"])
    times = sorted(event.time for event in events(data))
    assert told["seconds"] == pytest.approx(1.0)
    assert 0.9e9 < times[-1] - times[0] < 1.2e9
    assert session(data)["flight"] == {"wanted": 1.0, "why": "signal SIGUSR1"}
    hold_to_daemon(data, mount)
    hold_to_stock(data)
    quiet(data)


def test_no_more_than_n_are_kept_and_nobody_elses_goes(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    mount = sample_mount()
    theirs = tmp_path / "perf.data.20200101T000000Z"
    theirs.write_text("not a recording")
    link = tmp_path / "perf.data.20200102T000000Z"
    link.symlink_to(theirs)
    arguments = ("--mount", mount.path, "--flight", 5, "--keep", 2)
    with flight(tmp_path, *arguments) as process:
        first = [snap() for _ in range(3)]
        ended(process)
    with flight(tmp_path, *arguments) as process:  # it counts the recordings of an earlier recorder
        second = snap()
        ended(process)
    there = {path for path in tmp_path.iterdir() if not path.name.endswith(".stuck.json")}
    assert there == {theirs, link, first[2], second}
    accounts = {path.name.removesuffix(".stuck.json") for path in tmp_path.glob("*.stuck.json")}
    assert accounts == {first[2].name, second.name}
    assert theirs.read_text() == "not a recording"


def test_requests_that_wait(sample_mount: Mounter, tmp_path: Path) -> None:
    """For a stopped daemon one recording is written, immediately."""
    mount = sample_mount()
    arguments = ("--mount", mount.path, "--flight", 1, "--when", "waiting > 0 for 300ms")
    with flight(tmp_path, *arguments) as process:
        with mount.stopped():
            callers = [
                subprocess.Popen(["stat", mount.path / f"dir-0{n}"], stdout=subprocess.DEVNULL)
                for n in range(4)
            ]
            told = written(process)
            assert re.fullmatch(
                rf"waiting > 0 for 300ms: \d requests? on {re.escape(str(mount.path))}", told["why"]
            )
            account = held("stuck", Path(told["account"]).read_text())
            (one,) = account["mounts"]
            assert one["waiting"] > 0 and one["state"] == "stuck"
            pass_by(2.5)  # another line, which does not come
            assert len(list(tmp_path.glob("*Z"))) == 1
        for caller in callers:
            caller.wait(HANGS)


def test_one_that_comes_soon_is_in_the_next(sample_mount: Mounter, tmp_path: Path) -> None:
    """The same holds for the last recording, written at the end of the recorder."""
    mount = sample_mount(delay=("open=2s",))
    arguments = ("--mount", mount.path, "--flight", 8, "--when", "open > 300ms")

    def slow_one() -> int:
        file = mount.path / "dir-00" / "file-001"
        cat = subprocess.Popen(["cat", file], stdout=subprocess.DEVNULL)
        cat.wait(HANGS)
        return cat.pid

    pids, recordings = [], []
    with flight(tmp_path, *arguments) as process:
        for _ in range(2):
            pids.append(slow_one())
            recordings.append(written(process))
        pids.append(slow_one())
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=HANGS)
        assert process.returncode == 0, stderr
    recordings.append(held("snap", stdout))
    began = [line for line in stderr.splitlines() if "the flight recorder had begun then" in line]
    assert len(began) == (recordings[0]["seconds"] < 8), stderr  # none was before the first
    assert re.search(r" \(pid \d+\) [^,]*, [\d.]+ s ago$", recordings[1]["why"])
    for pid, told in zip(pids, recordings):
        opens = fusetools.open(told["output"]).slowest("open", most=len(pids)).requests
        assert pid in {one.pid for one in opens}  # it may hold the one before as well
        assert f"(pid {pid})" in told["why"]
    account = held("stuck", Path(recordings[1]["account"]).read_text())  # from that time
    assert [one["pid"] for one in account["mounts"][0]["callers"]] == [pids[1]]


def test_a_disk_without_room(sample_mount: Mounter, tmp_path: Path) -> None:
    """No recording is written, and the recorder continues."""
    mount = sample_mount()
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], check=True)
    try:
        arguments = ("--mount", mount.path, "--flight", 2, "-o", disk / "x")
        with flight(tmp_path, *arguments) as process:
            refused = run("snap")
            assert refused.returncode == 1
            assert f"cannot write in {disk}\n  why: a recording may need " in refused.stderr
            subprocess.run(["mount", "-o", "remount,size=1g", disk], check=True)
            assert snap().parent == disk
            said = ended(process)
        assert said.count("no recording was written (fusetools snap): cannot write in ") == 1
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_errors(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(error=("open=EIO:100%",))
    arguments = ("--mount", mount.path, "--flight", 5, "--when", "errors(EIO)")
    with flight(tmp_path, *arguments) as process:
        nothing, file = mount.path / "nothing", mount.path / "dir-00" / "file-000"
        subprocess.run(["ls", nothing], stderr=subprocess.DEVNULL, timeout=HANGS)  # ENOENT
        subprocess.run(["cat", file], stderr=subprocess.DEVNULL, timeout=HANGS)
        told = written(process)
        assert re.fullmatch(r"errors\(EIO\): open of cat \(pid \d+\) ended with EIO", told["why"])
    (opened,) = fusetools.open(told["output"]).errors("open").operations
    assert [row.name for row in opened.errors] == ["EIO"]


def test_killed_it_leaves_what_clean_removes(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(delay=("lookup=1ms",))
    arguments = ("--mount", mount.path, "--flight", 5, "--when", "read > 1s")
    with flight(tmp_path, *arguments) as process, load(mount):
        assert own_probes()
        perfs = children(process.pid, "perf")
        # Perf of the host, perf of the daemon's tasks, perf of the conditions
        assert len(perfs) == 3
        process.kill()
        process.wait(HANGS)
        wait_until(
            lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in perfs), "the end of perf"
        )
    assert run("clean").returncode == 0
    assert list(tmp_path.iterdir()) == []
    refused = run("snap")
    assert refused.returncode == 1
    assert "no flight recorder runs here\n  fix: fusetools record --flight 30\n" in refused.stderr


@pytest.mark.parametrize("which", [0, 1], ids=["host", "tasks"])
def test_perf_that_dies_ends_it(sample_mount: Mounter, tmp_path: Path, which: int) -> None:
    mount = sample_mount()
    with flight(tmp_path, "--mount", mount.path, "--flight", 5) as process:
        perfs = children(process.pid, "perf")
        assert len(perfs) == 2
        os.kill(perfs[which], signal.SIGKILL)
        said = process.communicate(timeout=HANGS)[1]
    assert process.returncode == 1
    assert "fusetools: the flight recorder ended\n  why: perf was killed\n" in said


def test_later_mounts_are_recorded(sample_mount: Mounter, tmp_path: Path) -> None:
    first = sample_mount()
    with flight(tmp_path, "--flight", 30, command=HURRIED) as process:
        second = sample_mount()
        said = armed(process)
        assert f"fusetools: {second.path} is mounted now: the flight recorder begins anew" in said
        process.send_signal(signal.SIGUSR1)
        told = written(process)
        for mount in (first, second):
            os.listdir(mount.path)
        data = snap()
    assert told["why"] == "signal SIGUSR1"
    sent = (event for event in events(data) if event.name == "fuse:fuse_request_send")
    assert {event.number("connection") for event in sent} == {first.connection, second.connection}


def test_all_commands_read_it(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(delay=("lookup=1ms",))
    with flight(tmp_path, "--mount", mount.path, "--flight", 5) as process, load(mount):
        pass_by(2)
        one, other = snap(), snap()
        ended(process)
    quiet(one)
    slowest = json.loads(run("slow", "-i", one, "--json").stdout)["requests"][0]
    lost = {
        ("show", slowest["unique"], "-i", one): "",
        ("flame", "-i", one, "-o", "on.svg"): "0 lost events",
        ("flame", "--offcpu", "-i", one, "-o", "off.svg"): "0 lost events",
        ("flame", "--requests", "-i", one, "-o", "requests.svg"): "0 lost events",
        ("report", one, other, "-o", "report.html"): "",
        ("diff", one, other): "B: .*0 lost events",
        ("export", "--format", "json", "-i", one, "-o", "requests.json"): "",
    }
    for command, text in lost.items():
        done = run(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert re.search(text, done.stdout + done.stderr), (command, done.stdout, done.stderr)
    exported = json.loads((tmp_path / "requests.json").read_text())["requests"]
    sent = {e.number("req") for e in events(one) if e.name == "fuse:fuse_request_send"}
    assert len(sent) > 100 and sent <= {request["unique"] for request in exported}


def memory(pid: int) -> int:
    """Return bytes of the process's own. Pages of files are not counted: the kernel may drop them
    and read them again."""
    return sum(number(pid, name) for name in ("RssAnon", "RssShmem", "VmSwap")) << 10


def number(pid: int, name: str) -> int:
    """Return a number in /proc/PID/status."""
    match = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match
    return int(match[1])


def test_memory_and_disk_are_bounded(sample_mount: Mounter, tmp_path: Path) -> None:
    """The recorder itself merges and reads nothing: it has one thread, and its memory stays
    constant."""
    mount = sample_mount()
    when = ("--when", "* > 60s", "--when", "errors(EIO)")
    arguments = ("--mount", mount.path, "--flight", 5, "--buffer", "4M", "--keep", 2, *when)
    sizes: list[list[int]] = []
    with flight(tmp_path, *arguments) as process:
        # Its output is read at the end, and would not fit into 64 KiB.
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, F_SETPIPE_SZ, 1 << 20)
        pids = [process.pid, *children(process.pid, "perf")]
        for _ in range(SNAPS):
            # Requests made while memory is looked at would be part of it.
            mount.workload("stat", 997, "dir-00/file-000")
            assert snap() == Path(written(process)["output"])
            sizes.append([memory(pid) for pid in pids])
            assert number(process.pid, "Threads") == 1
            disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
            assert disk < 2 * 2 * (os.cpu_count() or 1) * (4 << 20) + (4 << 20)
        ended(process)
    print(json.dumps(sizes))
    for of in zip(*sizes[SNAPS // 5 :]):
        assert max(of) - min(of) < FLAT, sizes


@contextlib.contextmanager
def child_stopped(process: subprocess.Popen[str]) -> Iterator[int]:
    """The recorder's child that assembles a recording, stopped meanwhile."""
    (own,) = Path(f"/proc/{process.pid}/comm").read_text().splitlines()
    found: list[int] = []

    def works() -> bool:
        """Return whether it has closed the recorder's standard output: then it dies with the
        recorder."""
        found[:] = children(process.pid, own)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return bool(found) and os.readlink(f"/proc/{found[0]}/fd/1") == "/dev/null"
        return False

    wait_until(works, "the recorder's child")
    os.kill(found[0], signal.SIGSTOP)
    try:
        yield found[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGCONT)


def asked() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "snap"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_child_that_is_killed_costs_one_recording(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    with flight(tmp_path, "--mount", mount.path, "--flight", 5) as process:
        client = asked()
        with child_stopped(process) as child:
            os.kill(child, signal.SIGKILL)
        _, said = client.communicate(timeout=HANGS)
        assert client.returncode == 1
        assert "the recording was not written\n  why: its process was ended by signal 9" in said
        assert snap().exists()
        assert "no recording was written (fusetools snap): " in ended(process)


def test_a_signal_to_end_waits_for_the_recording(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    with flight(tmp_path, "--mount", mount.path, "--flight", 5) as process:
        client = asked()
        with child_stopped(process) as child:
            process.send_signal(signal.SIGTERM)
            # Passed on: the recorder has received it.
            wait_until(lambda: pending(child, signal.SIGTERM), "SIGTERM for the child")
        said, _ = client.communicate(timeout=HANGS)
        assert Path(said.strip()).exists()
        process.communicate(timeout=HANGS)
        assert process.returncode == 0


def pending(pid: int, signal_: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    masks = re.findall(r"^S[hi][dg]Pnd:\s+(\w+)", status, re.MULTILINE)
    return any(int(mask, 16) >> (signal_ - 1) & 1 for mask in masks)


def test_killed_while_it_writes_it_leaves_what_clean_removes(
    sample_mount: Mounter, tmp_path: Path
) -> None:
    mount = sample_mount()
    with flight(tmp_path, "--mount", mount.path, "--flight", 5) as process:
        client = asked()
        with child_stopped(process) as child:
            process.kill()
            process.wait(HANGS)
            wait_until(lambda: not Path(f"/proc/{child}/fd/0").exists(), "the end of the child")
        assert client.wait(HANGS) == 1
    assert run("clean").returncode == 0
    assert list(tmp_path.iterdir()) == []
