"""Compare our reader with stock `perf script`: `differential.py N [RECORDING ...] [--seed S]`.

Without RECORDING: ours, and those of other kernels if available (FUSETOOLS_KERNELS). N times a
recording is damaged at one to three places. If both take it without a complaint, they must show
the same samples: time, process, thread, CPU and event of each.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DUMP = TARGET / "release" / "examples" / "dump"
DEMO = ROOT / "samples" / "recordings" / "demo.data"
KERNELS = Path(os.environ.get("FUSETOOLS_KERNELS", ROOT.parent / "shared" / "data" / "kernels"))
_PERF = re.compile(r"\s*(-?\d+)/(-?\d+)\s+\[(-?\d+)\]\s+(\d+)\.(\d{9}):\s+(\S+):(?:\s|$)")
_OURS = re.compile(r"(\d+) (-?\d+) (-?\d+) (-?\d+) (\S+)")
Sample = tuple[int, int, int, int, str]


def of_perf(path: Path) -> list[Sample] | None:
    command = [
        "perf",
        "script",
        "-f",
        "--ns",
        "-G",
        "-F",
        "pid,tid,cpu,time,event",
        "-i",
        str(path),
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or done.stderr.strip():
        return None
    found = []
    for line in done.stdout.decode(errors="replace").splitlines():
        match = _PERF.match(line)
        if match:
            pid, tid, cpu, seconds, ns, event = match.groups()
            found.append(
                (int(seconds) * 10**9 + int(ns), int(pid), int(tid), int(cpu) % 2**32, event)
            )
    return sorted(found)


def of_ours(path: Path) -> list[Sample] | None:
    done = subprocess.run([DUMP, path], capture_output=True, timeout=10)
    assert done.returncode in (0, 1), done.stderr  # a panic is 101
    if done.returncode or done.stderr.strip():
        return None
    found = []
    for line in done.stdout.decode(errors="replace").splitlines():
        match = _OURS.match(line)
        assert match, line
        at, pid, tid, cpu, event = match.groups()
        found.append((int(at), int(pid), int(tid), int(cpu), event))
    return sorted(found)


def damage(data: bytearray, random_: random.Random) -> None:
    for _ in range(random_.choice((0, 1, 1, 1, 2, 3))):
        near = min(4096, len(data) - 9)
        at = random_.choice((random_.randrange(near), random_.randrange(len(data) - 9)))
        how = random_.randrange(4)
        if how == 0:
            data[at] = random_.randrange(256)
        elif how == 1:
            data[at : at + 8] = random_.choice((bytes(8), b"\xff" * 8))
        elif how == 2:
            data[at] ^= 1 << random_.randrange(8)
        else:
            data[at] = (data[at] + random_.choice((1, 8, 248))) % 256


def ready(folder: Path) -> Iterator[Path]:
    yield DEMO
    for packed in sorted(KERNELS.glob("*/recording/perf.data.zst")) if shutil.which("zstd") else []:
        name = folder / packed.parts[-3]
        subprocess.run(["zstd", "-dqf", packed, "-o", name], check=True)
        yield name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int)
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    # With these packages (Makefile: CORE) cargo uses what it has compiled already.
    packages = ("--package", "fusetools-core", "--package", "fusetools-py")
    build = ["cargo", "build", "--quiet", "--release", *packages, "--example", "dump"]
    subprocess.run(build, cwd=ROOT, check=True)
    random_ = random.Random(asked.seed)
    counts: collections.Counter[str] = collections.Counter()
    folder = Path(tempfile.mkdtemp(prefix="fusetools-differential-"))
    path = folder / "damaged"
    try:
        recordings = asked.recordings or list(ready(folder))
        for number in range(asked.times):
            original = random_.choice(recordings)
            data = bytearray(original.read_bytes())
            damage(data, random_)
            path.write_bytes(data)
            perf, ours = of_perf(path), of_ours(path)
            if perf is None or ours is None:
                counts["both refuse" if perf is ours else "one refuses"] += 1
                continue
            same = perf == ours
            counts["same" if same else "DIFFERENT"] += 1
            if not same:
                kept = Path(tempfile.gettempdir(), f"differential-{asked.seed}-{number}")
                kept.write_bytes(data)
                more, less = sorted(set(ours) - set(perf)), sorted(set(perf) - set(ours))
                print(f"{kept} ({original}): {len(ours)} samples, perf has {len(perf)}")
                print(f"  only ours: {more[:2]}\n  only perf's: {less[:2]}")
    finally:
        shutil.rmtree(folder)
    print(f"seed {asked.seed}: {dict(counts)}")
    return 1 if counts["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
