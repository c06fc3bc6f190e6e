"""Fixtures of the tests that mount the sample file system on this host."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Protocol

import affairs
import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "samples" / "build"
PR_SET_PDEATHSIG = 1


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One live test at a time of all runs on this host, as there is one recording at a time."""
    with Path(tempfile.gettempdir(), "fusetools-live-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 10) -> None:
    """Returns when condition() holds; fails the test when it does not within that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s in vain for {what}")
        time.sleep(0.002)


def mount_entry(path: Path) -> list[str] | None:
    """The fields of the mount's line in /proc/self/mountinfo, read without touching the mount."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[4] == str(path):
            return fields
    return None


class SampleMount:
    """A mounted sample file system, a child process of the test."""

    def __init__(self, directory: Path, arguments: list[str], build: str, realtime: bool) -> None:
        self.tree = directory / "tree"
        self.path = directory / "mount"
        self.socket = directory / "socket"
        self.build = BUILD / build
        subprocess.run([BUILD / "make_tree", self.tree], check=True)
        self.path.mkdir()

        def in_child() -> None:
            # The mount must not outlive a test run that is killed.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if realtime:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        self.process = subprocess.Popen(
            [self.samplefs, "-f", "--socket", self.socket, *arguments, self.tree, self.path],
            stdin=subprocess.DEVNULL,
            preexec_fn=in_child,
        )
        self.pid = self.process.pid

    @property
    def samplefs(self) -> Path:
        """The daemon's executable."""
        return self.build / "samplefs"

    @property
    def library(self) -> Path:
        """The library with the callbacks cvmfs_lookup …"""
        return next(self.build.glob("libcvmfs_fuse3.so.*"))

    @property
    def stub_library(self) -> Path:
        """The library with stub_lookup …, which call those."""
        return next(self.build.glob("libcvmfs_fuse3_stub.so.*"))

    @property
    def mounted(self) -> bool:
        return mount_entry(self.path) is not None

    @property
    def connection(self) -> int:
        """The number that the kernel's tracepoints call the connection."""
        entry = mount_entry(self.path)
        assert entry is not None
        major, minor = map(int, entry[2].split(":"))
        return major << 20 | minor

    def wait(self) -> None:
        """Returns when it is mounted."""
        wait_until(lambda: self.mounted or self.process.poll() is not None, "the mount")
        assert self.mounted, f"samplefs ended with status {self.process.returncode}"

    def talk(self) -> str:
        """The answer to `internal affairs`, once all files of the mount have been closed.

        close(2) does not wait for the daemon: its release may still be on the way.
        """
        text = ""

        def closed() -> bool:
            nonlocal text
            command = [str(self.samplefs), "--talk", str(self.socket), "internal", "affairs"]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            counters = affairs.counters(text)
            return counters["cvmfs.no_open_files"] == counters["cvmfs.no_open_dirs"] == 0

        wait_until(closed, "the last release")
        return text

    def affairs(self) -> dict[str, affairs.Histogram]:
        """The daemon's own histograms since mount: "cvmfs_lookup" -> (total, bins, overflow)."""
        return affairs.parse(self.talk())

    def counters(self) -> dict[str, int]:
        """The daemon's own counters, such as "samplefs.n_delay_lookup"."""
        return affairs.counters(self.talk())

    def workload(self, operation: str, count: int, *paths: str) -> dict[str, Any]:
        """Makes count calls on the paths below the mount; returns what the workload says it did."""
        return self._workload(operation, count, *(self.path / path for path in paths))

    def mixed(self, processes: int = 8) -> dict[str, Any]:
        """Makes prime numbers of every operation in each of that many processes."""
        return self._workload("mixed", "--processes", processes, self.path)

    def _workload(self, *arguments: object) -> dict[str, Any]:
        command = [str(BUILD / "workload"), *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def pin(self) -> list[str]:
        """Keeps the daemon on one CPU; returns the words before a workload that keep it there, too.

        Whom a request's caller wakes then always runs next: the shortest durations are all alike.
        """
        cpu = min(os.sched_getaffinity(0))
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cpu})
        return ["taskset", "-c", str(cpu)]

    def forget(self) -> None:
        """Makes the kernel forget the inodes of this mount, and of no other."""
        subprocess.run(["mount", "-i", "-o", "remount,ro", self.path], check=True)

    def unmount(self) -> int:
        """Ends the daemon as its users do, by SIGTERM; returns its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(10)

    def clean(self) -> None:
        """Leaves nothing behind, whatever the test has done."""
        try:
            self.unmount()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.mounted:
            subprocess.run(["umount", "-l", self.path], check=True)


class SlowServer:
    """A running samples/fs/server.py, a child process of the test."""

    def __init__(self, log: Path, *options: str) -> None:
        self._log = log
        with log.open("wb") as output:
            command = [sys.executable, ROOT / "samples" / "fs" / "server.py", *options]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
        wait_until(lambda: log.read_text().endswith("\n"), "the server's port")
        self.port = int(log.read_text())

    def requests(self) -> list[dict[str, Any]]:
        """What it answered so far: "path", and "begin" and "end" in ns of CLOCK_MONOTONIC."""
        return [json.loads(line) for line in self._log.read_text().splitlines()[1:]]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Mounter(Protocol):
    """options: further arguments for samplefs; delay, error: values of --delay and --error.

    stripped, as_shipped: another build than the one with symbols and frame pointers.
    realtime: the daemon goes before all others on this host, so that its delays are exact.
    """

    def __call__(
        self,
        *options: str,
        kernel_cache: float = 0,
        delay: tuple[str, ...] = (),
        error: tuple[str, ...] = (),
        stripped: bool = False,
        as_shipped: bool = False,
        realtime: bool = False,
    ) -> SampleMount: ...


@pytest.fixture(scope="session")
def samples() -> Path:
    """The directory of the built sample programs."""
    if os.geteuid() != 0:
        pytest.skip("mounting the sample file system needs root")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this host has no /dev/fuse")
    subprocess.run(["make", "-s", "-C", ROOT / "samples" / "fs"], check=True)
    return BUILD


@pytest.fixture
def sample_mount(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounter]:
    """Mounts the sample file system, with kernel caching off unless asked for."""
    mounts: list[SampleMount] = []

    def mount(
        *options: str,
        kernel_cache: float = 0,
        delay: tuple[str, ...] = (),
        error: tuple[str, ...] = (),
        stripped: bool = False,
        as_shipped: bool = False,
        realtime: bool = False,
    ) -> SampleMount:
        arguments = ["--kernel-cache", str(kernel_cache), *options]
        arguments += [f"--delay={value}" for value in delay]
        arguments += [f"--error={value}" for value in error]
        build = "stripped" if stripped else "as-shipped" if as_shipped else "with-symbols"
        # In a directory with a short path: that of a socket has at most 107 bytes.
        sample = SampleMount(tmp_path_factory.mktemp("fs"), arguments, build, realtime)
        mounts.append(sample)
        sample.wait()
        return sample

    yield mount
    for sample in mounts:
        sample.clean()


@pytest.fixture
def slow_server(tmp_path: Path) -> Iterator[Callable[..., SlowServer]]:
    """Starts the server that the sample file system downloads from, with these options."""
    servers: list[SlowServer] = []

    def start(*options: str) -> SlowServer:
        servers.append(SlowServer(tmp_path / f"server-{len(servers)}.log", *options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
