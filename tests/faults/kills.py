"""Kills recordings at random moments.

`kills.py N [--seed S] [--seconds MOST] [--hold SECONDS]`. Each time `kill -9` hits fusetools, one
of its children, or all of them, at a random moment of `record -- WORKLOAD` or `trace`. The next
recording or `fusetools clean` must then leave nothing behind, and the recorded data must be
readable. Other live tests get their turn every --hold seconds. Prints how many kills hit which
process; exits with 1 if something was left. If FUSETOOLS_KILLS names a file, a line with the result
is appended to it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "samples" / "build"
COMMAND = [sys.executable, "-m", "fusetools"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from leftovers import hidden, state  # noqa: E402
from mounts import alone, end_with_the_test, mount_entry  # noqa: E402

import fusetools  # noqa: E402
from fusetools.names import FTRACE  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x44000
TARGETS = ("fusetools", "child", "all", "group")


def descendants(pid: int) -> list[int]:
    """Return children and their descendants."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def kill(pids: list[int]) -> int:
    hit = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            hit += 1
    return hit


def strike(process: subprocess.Popen[bytes], target: str, random_: random.Random) -> str:
    """Kill the chosen processes. Return their names, "" if all had exited."""
    if process.poll() is not None:
        return ""
    below = descendants(process.pid)
    chosen = {
        "fusetools": [process.pid],
        "child": random_.sample(below, 1) if below else [],
        "all": [process.pid, *below],
        "group": [*below, process.pid],
    }[target]
    names = ["fusetools" if pid == process.pid else name_of(pid) for pid in chosen]
    return "+".join(sorted(set(names))) if kill(chosen) else ""


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(b"fusetools.record.merger" in word for word in words):
            return "merger"
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "?"


def start(words: list[str], log: Path | None = None) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    words = [*COMMAND, *words]
    errors = log.open("wb") if log else None
    try:
        return subprocess.Popen(
            words, stdin=quiet, stdout=quiet, stderr=errors or quiet, env=ENVIRONMENT
        )
    finally:
        if errors:
            errors.close()


def record(mount: Path, output: Path) -> subprocess.Popen[bytes]:
    work = ["sh", "-c", f"ls -R {mount}; stat {mount}/dir-00"]
    words = ["record", "--mount", str(mount), "-o", str(output), "--", *work]
    return start(words, output.with_name("said"))


@contextlib.contextmanager
def mounted(place: Path) -> Iterator[tuple[Path, int]]:
    """Yield the sample file system and its daemon's pid, while no other live test runs."""
    mount = place / "mount"
    samplefs = BUILD / "with-symbols" / "samplefs"
    options: list[str | Path] = ["-f", "--socket", place / "socket", "--kernel-cache", "0"]
    with alone():
        daemon = subprocess.Popen(
            [samplefs, *options, place / "tree", mount], preexec_fn=end_with_the_test
        )
        try:
            while mount_entry(mount) is None:
                time.sleep(0.01)
            yield mount, daemon.pid
        finally:
            daemon.terminate()
            daemon.wait()


def orphans(daemon: int) -> list[int]:
    """Return what is left of recordings' processes: orphans become children of this process."""
    for _ in range(100):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        alive = [pid for pid in map(int, children) if pid != daemon]
        for pid in alive:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not alive:
            break
        time.sleep(0.02)  # killed processes may not have exited yet
    return alive


class Unmerged(Exception):
    """Return merge's output."""


class Campaign:
    def __init__(self, seed: int, place: Path) -> None:
        self.seed, self.place = seed, place
        self.random = random.Random(seed)
        self.hits: collections.Counter[str] = collections.Counter()
        self.after: collections.Counter[str] = collections.Counter()
        self.left: list[str] = []
        self.number = 0
        self.seconds = 0.0

    def measure(self, mount: Path) -> None:
        """Return the duration of a recording; the first one fills caches."""
        for _ in range(2):
            begin = time.monotonic()
            assert record(mount, self.place / "perf.data").wait() == 0
            self.seconds = time.monotonic() - begin

    def kill(self, mount: Path, daemon: int) -> None:
        self.number += 1
        output = self.place / f"{self.number}.data"
        before = state()
        streams = self.random.random() < 0.15
        trace = ["trace", "--mount", str(mount)]
        process = start(trace) if streams else record(mount, output)
        time.sleep(self.random.uniform(0.15, 1.05) * self.seconds)
        hit = strike(process, self.random.choice(TARGETS), self.random)
        if streams:  # the command would not end by itself
            process.send_signal(signal.SIGINT)
        status = process.wait()
        first = "" if streams else (self.place / "said").read_text(errors="replace")
        if hit:
            self.hits[f"{hit} of trace" if streams else hit] += 1
        else:
            self.after["too late"] += 1
        # The next command cleans up: another recording, or clean.
        again = self.random.random() < 0.3
        next_ = record(mount, self.place / "perf.data") if again else start(["clean"])
        what = f"kill {self.number} (seed {self.seed}, {hit or 'nobody'})"
        if next_.wait() != 0:
            said = (self.place / "said").read_text(errors="replace") if again else ""
            self.left.append(f"{what}: the next command's status is {next_.returncode}: {said}")
        after = state()
        self.left += [
            f"{what}: {name}: {after[name]!r}, before: {before[name]!r}"
            for name in after
            if after[name] != before[name]
        ]
        self.left += [f"{what}: {name}" for name in hidden(self.place)]
        for pid in orphans(daemon):
            self.left.append(f"{what}: process {pid} ({name_of(pid)})")
            os.kill(pid, signal.SIGKILL)
        if not hit and status != 0 and not streams:
            self.left.append(f"{what}: status {status} though nobody was hit: {first}")
        self.read(hit, what)

    def read(self, hit: str, what: str) -> None:
        parts = sorted(self.place.glob(f"{self.number}.data*"))
        for part in parts:
            beside = part.with_name(part.name + FTRACE)
            try:
                if part.name.endswith(FTRACE) and part.with_name(part.stem) in parts:
                    continue  # the command that reads it depends on its form
                fusetools.open(self.merged(part, beside) if beside in parts else part).counts()
            except (fusetools.Error, Unmerged) as error:
                # A killed perf has not written the names of its events, which is reported.
                if "perf" not in hit or "never finished" not in str(error):
                    self.left.append(f"{what}: {part.name} cannot be read: {error}")
                self.after["of that without names"] += 1
        for part in parts:
            part.unlink()
        self.after["a recording" if parts else "nothing recorded yet"] += 1

    def merged(self, part: Path, beside: Path) -> Path:
        """Return the result of the command that reading one part recommends."""
        try:
            fusetools.open(part)
        except fusetools.Error as error:
            assert error.fix and str(beside) in error.fix, error
            words = shlex.split(error.fix)[1:]
            done = subprocess.run(
                [*COMMAND, *words], cwd=self.place, capture_output=True, text=True
            )
            if done.returncode:
                raise Unmerged(done.stderr) from error
            return self.place / words[-1]
        return part


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--hold", type=float, default=20.0, help="seconds, then others' turn")
    query = parser.parse_args()
    library = ctypes.CDLL(None)
    if (
        library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        or library.unshare(CLONE_NEWNS)  # other processes mount and unmount meanwhile
        or library.mount(None, b"/", None, MS_REC_PRIVATE, None)
    ):
        parser.error("neither a subreaper nor a mount namespace of our own: run it as root")
    # A background shell and its children ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin = time.monotonic()
    # Use a path that is short enough for the daemon's socket.
    place = Path(tempfile.mkdtemp(prefix="fusetools-kills-"))
    campaign = Campaign(query.seed, place)

    def goes_on() -> bool:
        enough = sum(campaign.hits.values()) >= query.times or len(campaign.left) > 20
        return not enough and time.monotonic() - begin < query.seconds

    try:
        subprocess.run([BUILD / "make_tree", place / "tree"], check=True)
        (place / "mount").mkdir()
        while goes_on():
            with mounted(place) as (mount, daemon):
                end = time.monotonic() + query.hold
                if not campaign.seconds:
                    campaign.measure(mount)
                while goes_on() and time.monotonic() < end:
                    campaign.kill(mount, daemon)
            time.sleep(0.5)
    except KeyboardInterrupt:
        print("stopped")
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(place)], check=True)
    for line in campaign.left:
        print(line)
    kills = sum(campaign.hits.values())
    summary = (
        f"{kills} kills, seed {query.seed}, {time.monotonic() - begin:.0f} s: "
        f"{dict(campaign.hits)}; afterwards: {dict(campaign.after)}; "
        f"{len(campaign.left)} left or wrong"
    )
    print(summary)
    if notes := os.environ.get("FUSETOOLS_KILLS"):
        with Path(notes).open("a") as file:
            file.write(f"{summary}\n")
    return 1 if campaign.left or not kills else 0


if __name__ == "__main__":
    sys.exit(main())
