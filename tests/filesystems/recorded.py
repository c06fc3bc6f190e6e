"""Records a workload on a file system, while other tools count the same requests."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import catalogue
import mounts
import pytest
from catalogue import BUILD, MARK, FileSystem, Place, Word
from click.testing import CliRunner

from fusetools import cli

FUSETOOLS = Path(sys.executable).with_name("fusetools")
WORKLOAD = BUILD / "workload"


@dataclass(frozen=True)
class Request:
    """A request as in the kernel's tracepoints, recorded and printed by stock perf."""

    unique: int
    operation: str
    begin: int  # ns
    end: int | None


@dataclass(frozen=True)
class Delay:
    """One line of the delay library's log; times in ns."""

    thread: int
    begin: int
    end: int
    function: str
    path: str


class Independent:
    """Another perf that records the requests of a connection from `with` to its end."""

    def __init__(self, folder: Path, connection: int) -> None:
        self.folder = folder
        self.connection = connection

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        control, answers = self.folder / "control", self.folder / "answers"
        os.mkfifo(control)
        os.mkfifo(answers)
        command: list[str | Path] = [
            "perf",
            "record",
            "-q",
            "-a",
            "-k",
            "CLOCK_MONOTONIC",
            "-D",
            "-1",
        ]
        command += ["--control", f"fifo:{control},{answers}", "-o", self.folder / "other.data"]
        for event in ("fuse:fuse_request_send", "fuse:fuse_request_end"):
            command += ["-e", event, "--filter", f"connection=={self.connection}"]
        perf = subprocess.Popen(
            command, preexec_fn=mounts.end_with_the_test, stderr=subprocess.PIPE, text=True
        )
        try:
            # Open both ends for reading and writing: then nothing waits for a perf that has failed.
            with control.open("r+b", buffering=0) as to, answers.open("r+b", buffering=0) as back:
                os.set_blocking(back.fileno(), False)
                to.write(b"enable\n")
                answer = b""

                def enabled() -> bool:
                    nonlocal answer
                    answer += back.read(64) or b""
                    return b"ack" in answer or perf.poll() is not None

                mounts.wait_until(enabled, "the second perf")
                assert perf.poll() is None, perf.communicate()[1]
                yield
        finally:
            if perf.poll() is None:
                perf.send_signal(signal.SIGINT)
            perf.communicate()

    def requests(self) -> list[Request]:
        command = ["perf", "script", "--ns", "-F", "comm,time,event,trace"]
        text = subprocess.run(
            [*command, "-i", self.folder / "other.data"], check=True, capture_output=True, text=True
        ).stdout
        sent: dict[int, tuple[str, int]] = {}
        ended: dict[int, int] = {}
        for line in text.splitlines():
            if line.lstrip().startswith("fusetools "):
                continue  # statfs, to check each mount before and after a recording
            found = re.match(
                r".*? (\d+)\.(\d{9}):\s+fuse:fuse_request_(\w+):.* req (\d+)(?:.*FUSE_(\w+))?", line
            )
            assert found, line
            time = int(found[1]) * 10**9 + int(found[2])
            if found[3] == "send":
                if int(found[4]) in sent:
                    pytest.skip("the tracepoints of this kernel do not number requests")
                sent[int(found[4])] = found[5].lower(), time
            else:
                ended[int(found[4])] = time
        return [
            Request(unique, operation, time, ended.get(unique))
            for unique, (operation, time) in sent.items()
        ]


@dataclass(frozen=True)
class Recorded:
    """A recording, and other tools' data about the same time.

    daemon: its pid; doctor: doctor's output for the mount; progress: record's output. outcome: of
    the workload, call -> {"calls": …, "errors": …}; traced: the same calls in another round, by
    strace -c. left: what was still in use when all was unmounted.
    """

    fs: FileSystem
    folder: Path
    daemon: int
    doctor: dict[str, Any]
    progress: str
    requests: list[Request]
    delays: list[Delay]
    outcome: dict[str, Any]
    traced: dict[str, int]
    other_outcome: dict[str, Any]
    alive: bool
    answers: bool
    left: list[str]

    @property
    def data(self) -> Path:
        return self.folder / "perf.data"

    def ask(self, *arguments: str) -> str:
        """Return the output of a command about the recording, run once for all tests."""
        return _ask(self.data, arguments)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ask(*arguments, "--json"))

    def rows(self) -> list[dict[str, str]]:
        """Return every request, as `export` has it."""
        return list(csv.DictReader(io.StringIO(self.ask("export", "--format", "csv", "-o", "-"))))

    def stacks(self, *arguments: str) -> Counter[str]:
        """Return folded stacks: ns of each."""
        folded: Counter[str] = Counter()
        for line in self.ask("flame", *arguments, "-o", "-").splitlines():
            stack, _, value = line.rpartition(" ")
            folded[stack] += round(float(value) * 1000)  # Return us.
        return folded

    def operations(self) -> Counter[str]:
        return Counter(request.operation for request in self.requests)

    def delayed(self) -> int:
        """Return the ns of all delays."""
        return sum(delay.end - delay.begin for delay in self.delays)


@functools.lru_cache(maxsize=64)  # more than the tests ask about one recording
def _ask(data: Path, arguments: tuple[str, ...]) -> str:
    result = CliRunner().invoke(cli.main, [*arguments, "-i", str(data)])
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result.stdout


def workload(place: Place, fs: FileSystem, directory: str, settled: Path) -> list[list[str]]:
    """Return the commands of a round, which writes in a directory of its own."""
    commands = [["read", place.mount / "given"]]
    if fs.writes:
        commands.append(["write", place.mount / directory])
    return [
        [str(word) for word in (WORKLOAD, *command, "--settled", settled)] for command in commands
    ]


def add(outcomes: list[str]) -> dict[str, Any]:
    """Return the sum of several workloads' outputs."""
    total: dict[str, Any] = {}
    for text in outcomes:
        for call, outcome in json.loads(text).items():
            sum_ = total.setdefault(call, {"calls": 0, "errors": Counter()})
            sum_["calls"] += outcome["calls"]
            sum_["errors"].update(outcome["errors"])
    return total


def strace(commands: list[list[str]], folder: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Return calls of each kind as strace -c counts them, and the outcome of the same workloads."""
    calls: Counter[str] = Counter()
    outcomes = []
    for command in commands:
        table = folder / "strace"
        done = subprocess.run(
            ["strace", "-c", "-f", "-U", "name,calls", "-o", table, *command],
            check=True,
            capture_output=True,
            text=True,
        )
        outcomes.append(done.stdout)
        for line in table.read_text().splitlines():
            words = line.split()
            if len(words) == 2 and words[1].isdigit() and words[0] != "total":
                calls[words[0]] += int(words[1])
    return dict(calls), add(outcomes)


@contextlib.contextmanager
def fusectl(folder: Path) -> Iterator[Path]:
    """Yield the directory of all connections, in a private mount that ends with this process."""
    path = folder / "connections"
    path.mkdir()
    subprocess.run(["mount", "-t", "fusectl", "none", path], check=True)
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    finally:
        subprocess.run(["umount", "-l", path], check=True)
    path.rmdir()
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{fd}")
    finally:
        os.close(fd)


def doctor(mount: Path) -> dict[str, Any]:
    """Return doctor's output for that mount."""
    done = subprocess.run([FUSETOOLS, "doctor", "--json"], capture_output=True, text=True)
    for entry in json.loads(done.stdout)["mounts"]:
        if entry["path"] == str(mount):
            found: dict[str, Any] = entry
            return found
    raise AssertionError(f"doctor does not see {mount}: {done.stdout}")


def read(path: Path) -> bytes:
    """Return a file's content; nothing for a mount that does not answer."""
    with contextlib.suppress(subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return subprocess.run(["cat", path], check=True, capture_output=True, timeout=20).stdout
    return b""


def record(fs: FileSystem, folder: Path) -> Recorded:
    place = Place(folder)
    data = folder / "perf.data"
    try:
        daemon = fs.start(place)
        connection = mounts.connection(place.mount)
        independent = Independent(folder, connection)
        advice = doctor(place.mount)
        with fusectl(folder) as connections:
            settled = connections / str(connection) / "waiting"
            traced, other_outcome = strace(workload(place, fs, "traced", settled), folder)
            commands = workload(place, fs, "recorded", settled)
            slow: list[Word] = [WORKLOAD, "slow", place.mount / MARK, place.switch]
            commands.append([str(word) for word in (*slow, "--settled", settled)])
            script = " && ".join(map(shlex.join, commands))
            command: list[Word] = [FUSETOOLS, "record", "--mount", place.mount, "-o", data]
            with independent.recording():
                done = subprocess.run(
                    [*command, "--", "sh", "-c", script], capture_output=True, text=True
                )
        if done.returncode:
            raise RuntimeError(f"the recording failed: {done.stderr}")
        alive = daemon.poll() is None
        answers = read(place.mount / "given" / "file-00") == catalogue.content(0)
    finally:
        left = place.clean()
    log = place.log.read_text().splitlines() if place.log.exists() else []
    delays = [
        Delay(int(thread), int(begin), int(end), function, path)
        for thread, begin, end, function, path in (line.split(" ", 4) for line in log)
    ]
    left += [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if str(folder) in line
    ]
    outcomes = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return Recorded(
        fs,
        folder,
        daemon.pid,
        advice,
        done.stderr,
        independent.requests(),
        delays,
        add(outcomes),
        traced,
        other_outcome,
        alive,
        answers,
        left,
    )
