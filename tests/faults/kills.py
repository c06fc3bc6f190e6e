"""Kills recordings at random moments: `kills.py N [--seed S] [--seconds MOST]`.

Each time `kill -9` hits fusetools, one of its children, or all of them, at a random moment of
`record -- WORKLOAD`. The next recording or `fusetools clean` then has to leave nothing, and what
was recorded has to be readable. Prints how many kills hit whom; status 1: something was left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "samples" / "build"
COMMAND = [sys.executable, "-m", "fusetools"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from leftovers import hidden, nobody_records, processes, state  # noqa: E402
from mounts import end_with_the_test, mount_entry  # noqa: E402

import fusetools  # noqa: E402

TARGETS = ("fusetools", "child", "all", "group")


def descendants(pid: int) -> list[int]:
    """Children, and theirs."""
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
    """Kills; returns the names of who was hit, "" where all had ended."""
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


def record(mount: Path, output: Path) -> subprocess.Popen[bytes]:
    work = ["sh", "-c", f"ls -R {mount}; stat {mount}/dir-00"]
    words = [*COMMAND, "record", "--mount", str(mount), "-o", str(output), "--", *work]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, env=ENVIRONMENT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked = parser.parse_args()
    random_ = random.Random(asked.seed)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fusetools-kills-") as folder, nobody_records():
        place = Path(folder)
    place.mkdir()
    mount, tree = place / "mount", place / "tree"
    subprocess.run([BUILD / "make_tree", tree], check=True)
    mount.mkdir()
    samplefs = BUILD / "with-symbols" / "samplefs"
    words: list[str | Path] = [
        samplefs,
        "-f",
        "--socket",
        place / "socket",
        "--kernel-cache",
        "0",
        tree,
        mount,
    ]
    daemon = subprocess.Popen(words, preexec_fn=end_with_the_test)
    while mount_entry(mount) is None:
        time.sleep(0.01)
    hits: collections.Counter[str] = collections.Counter()
    kept: collections.Counter[str] = collections.Counter()
    left: list[str] = []
    try:
        before = state()
        whole = []
        for _ in range(2):  # the first fills caches
            start = time.monotonic()
            assert record(mount, place / "perf.data").wait() == 0
            whole.append(time.monotonic() - start)
        number = 0
        while sum(hits.values()) < asked.times and time.monotonic() - begun < asked.seconds:
            number += 1
            output = place / f"{number}.data"
            process = record(mount, output)
            time.sleep(random_.uniform(0.15, 1.05) * whole[-1])
            hit = strike(process, random_.choice(TARGETS), random_)
            status = process.wait()
            if not hit:
                kept["too late"] += 1
            else:
                hits[hit] += 1
            # Whoever comes next clears up: another recording, or clean.
            if random_.random() < 0.3:
                next_ = record(mount, place / "perf.data").wait()
            else:
                next_ = subprocess.run(
                    [*COMMAND, "clean"], stdout=subprocess.DEVNULL, env=ENVIRONMENT
                ).returncode
            what = f"kill {number} (seed {asked.seed}, {hit or 'nobody'})"
            if next_ != 0:
                left.append(f"{what}: the next command's status is {next_}")
            after = state()
            left += [
                f"{what}: {name}: {after[name]!r}, before: {before[name]!r}"
                for name in after
                if after[name] != before[name]
            ]
            left += [f"{what}: {name}" for name in hidden(place)]
            left += [f"{what}: process {pid}" for pid in processes([f"{place}/{number}.data"])]
            parts = sorted(place.glob(f"{number}.data*"))
            for part in parts:
                try:
                    fusetools.open(part).counts()
                except fusetools.Error as error:
                    # A perf that was killed has written no names of its events: that is reported.
                    if "perf" not in hit or "never finished" not in error.why:
                        left.append(f"{what}: {part.name} cannot be read: {error}")
                    kept["of that without names"] += 1
                part.unlink()
            kept["a recording" if parts else "nothing recorded yet"] += 1
            if not hit and status != 0:
                left.append(f"{what}: status {status} though nobody was hit")
            if len(left) > 20:
                break
    finally:
        daemon.terminate()
        daemon.wait()
        subprocess.run(["rm", "-rf", "--one-file-system", str(place)], check=True)
    for line in left:
        print(line)
    total = sum(hits.values())
    print(f"{total} kills, seed {asked.seed}, {time.monotonic() - begun:.0f} s: {dict(hits)}")
    print(f"afterwards: {dict(kept)}; {len(left)} left or wrong")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
