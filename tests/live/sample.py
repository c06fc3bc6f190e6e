"""The sample file system and its server as child processes of a test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import affairs
import mounts
from mounts import HANGS, mount_entry, wait_until

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "samples" / "build"


def until(condition: str) -> str:
    """Shell function: wait until a command succeeds; exit with 97 when it hangs."""
    tries = int(HANGS * 100)
    return f"n=0; until {condition}; do n=$((n+1)); [ $n -lt {tries} ] || exit 97; sleep 0.01; done"


def make_tree(place: Path) -> Path:
    """1,750 files: to list them takes as long as a short recording."""
    subprocess.run([BUILD / "make_tree", place], check=True)
    return place


class SampleMount:
    """A mounted sample file system, a child process of the test.

    ``tree``: the directory that it serves, made by make_tree; by default one of its own.
    """

    def __init__(
        self,
        directory: Path,
        arguments: list[str],
        build: str,
        before: Sequence[str] = (),
        tree: Path | None = None,
    ) -> None:
        self.tree = tree or make_tree(directory / "tree")
        self.path = directory / "mount"
        self.socket = directory / "socket"
        self.build = BUILD / build
        self.path.mkdir()

        def in_child() -> None:
            # The mount must not outlive a killed test run.
            mounts.end_with_the_test()

        self.process = subprocess.Popen(
            [
                *before,
                self.samplefs,
                "-f",
                "--socket",
                self.socket,
                *arguments,
                self.tree,
                self.path,
            ],
            stdin=subprocess.DEVNULL,
            preexec_fn=in_child,
        )
        self.pid = self.process.pid

    @property
    def samplefs(self) -> Path:
        """Return the daemon's executable."""
        return self.build / "samplefs"

    @property
    def library(self) -> Path:
        """Return the library with the callbacks cvmfs_lookup …"""
        return next(self.build.glob("libcvmfs_fuse3.so.*"))

    @property
    def stub_library(self) -> Path:
        """Return the library with stub_lookup …, which call those callbacks."""
        return next(self.build.glob("libcvmfs_fuse3_stub.so.*"))

    @property
    def mounted(self) -> bool:
        return mount_entry(self.path) is not None

    @property
    def connection(self) -> int:
        """Return the connection's number in the kernel's tracepoints."""
        return mounts.connection(self.path)

    def wait(self) -> None:
        """Wait until it is mounted."""
        wait_until(lambda: self.mounted or self.process.poll() is not None, "the mount")
        assert self.mounted, f"samplefs ended with status {self.process.returncode}"

    def ask(self, *command: str) -> str:
        """Return the daemon's current answer."""
        words = [str(self.samplefs), "--talk", str(self.socket), *command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def talk(self) -> str:
        """Return the answer to `internal affairs`, once all files of the mount have been closed.

        close(2) does not wait for the daemon: the release request may still be in flight.
        """
        text = ""

        def closed() -> bool:
            nonlocal text
            text = self.ask("internal", "affairs")
            counters = affairs.counters(text)
            return counters["cvmfs.no_open_files"] == counters["cvmfs.no_open_dirs"] == 0

        wait_until(closed, "the last release")
        return text

    def calls(self) -> list[affairs.Call]:
        """Return every call of a callback since mount, at most the last 65536, once all have
        ended."""
        self.talk()
        calls = affairs.calls(self.ask("calls"))
        assert all(call.left for call in calls)
        return calls

    def wait_for(self, operation: str) -> None:
        """Wait until a callback of the operation is in its delay."""

        def delayed() -> bool:
            calls = affairs.calls(self.ask("calls"))
            return any(
                call.operation == operation and call.delay_begin > call.delay_end for call in calls
            )

        wait_until(delayed, f"a {operation} in its delay")

    def affairs(self) -> dict[str, affairs.Histogram]:
        """Return the daemon's own histograms since mount: "cvmfs_lookup" -> (total, bins,
        overflow)."""
        return affairs.parse(self.talk())

    def callbacks(self) -> Counter[str]:
        """Return the calls of each callback since mount: "cvmfs_lookup" -> count."""
        return Counter({name: value.total for name, value in self.affairs().items()})

    def counters(self) -> dict[str, int]:
        """Return the daemon's own counters, such as "samplefs.n_delay_lookup"."""
        return affairs.counters(self.talk())

    def until_in(self, operation: str) -> str:
        """Return shell code that waits until a callback of the operation is in its delay."""
        row = f"^{operation} [0-9]* [0-9]* [1-9][0-9]* 0 "
        return until(f"{self.samplefs} --talk {self.socket} calls | grep -q '{row}'")

    def until_stopped(self) -> str:
        """Return shell code that stops the daemon, and waits until each thread has stopped.

        Until then a thread may still answer.
        """
        threads = f"grep -h ^State: /proc/{self.pid}/task/*/status"
        return f"kill -STOP {self.pid}; while {threads} | grep -qv T; do sleep 0.01; done"

    def until_forgotten(self) -> str:
        """Return shell code that waits until the kernel has forgotten all inodes, and the daemon
        knows."""
        ask = f"{self.samplefs} --talk {self.socket} internal affairs"
        return until(f"{ask} | grep -q '^inode_tracker.no_reference|1|'")

    def workload(self, operation: str, count: int, *paths: str) -> dict[str, Any]:
        """Make count calls on the paths below the mount. Return the workload's report."""
        return self._workload(operation, count, *(self.path / path for path in paths))

    def mixed(self, processes: int = 8) -> dict[str, Any]:
        """Make prime numbers of every operation in each of that many processes."""
        return self._workload("mixed", "--processes", processes, self.path)

    def busy(self, calls: str = "stat 97 {}/dir-00/file-000") -> subprocess.Popen[bytes]:
        """Start a caller in a session of its own that repeats these calls; {} is the mount."""
        command = f"{BUILD / 'workload'} {calls.format(self.path)}"
        return subprocess.Popen(
            ["sh", "-c", f"while {command}; do :; done"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _workload(self, *arguments: object) -> dict[str, Any]:
        command = [str(BUILD / "workload"), *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def pin(self) -> list[str]:
        """Pin the daemon to one CPU. Return the command prefix that pins a workload there, too.

        The thread that a caller's request wakes then runs next, and takes the CPU from the caller.
        """
        cpu = min(os.sched_getaffinity(0))
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cpu})
        return ["taskset", "-c", str(cpu)]

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the daemon (SIGSTOP) within the context.

        It continues even if the test run is killed.
        """
        os.kill(self.pid, signal.SIGSTOP)
        command = ["sh", "-c", f"cat; kill -CONT {self.pid}"]
        guard = subprocess.Popen(command, stdin=subprocess.PIPE)
        try:
            yield
        finally:
            guard.communicate(timeout=HANGS)

    def forget(self) -> None:
        """Make the kernel forget the inodes of this mount, and of no other one."""
        subprocess.run(["mount", "-i", "-o", "remount,ro", self.path], check=True)

    def unmount(self) -> int:
        """End the daemon as its users do, by SIGTERM. Return its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(HANGS)

    def clean(self) -> None:
        """Leave nothing behind, whatever the test has done."""
        self.process.send_signal(signal.SIGCONT)
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
            command: list[str | Path] = [
                sys.executable,
                ROOT / "samples" / "fs" / "server.py",
                *options,
            ]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
        wait_until(lambda: log.read_text().endswith("\n"), "the server's port")
        self.port = int(log.read_text())

    def requests(self) -> list[dict[str, Any]]:
        """Return its answers so far: "path", and "begin" and "end" in ns of CLOCK_MONOTONIC."""
        return [json.loads(line) for line in self._log.read_text().splitlines()[1:]]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Mounter(Protocol):
    """Mount the sample file system.

    options: further arguments for samplefs; delay, error: values of --delay and --error. stripped,
    as_shipped: use another build than the one with symbols and frame pointers. before: words before
    the daemon's command; own_tree: serve a tree of its own, which may be changed.
    """

    def __call__(
        self,
        *options: str,
        kernel_cache: float = 0,
        delay: tuple[str, ...] = (),
        error: tuple[str, ...] = (),
        stripped: bool = False,
        as_shipped: bool = False,
        before: Sequence[str] = (),
        own_tree: bool = False,
    ) -> SampleMount: ...
