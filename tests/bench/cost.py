"""Overhead of recording beside other tools, in turn, as ratios: part of `make bench`.

The workload is a loop of stat. The tools are fusetools at each level of detail, bpftrace, `perf
record -g` and `strace -c` (if installed). The mounts are the sample client as shipped and bindfs.
Measured are the CPU time that recording adds, the overhead that the recording reports, seconds of
`record -- true`, bytes per request, and the CPU time of `top`. Needs root. Prints and never
asserts: machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pairs import ratio, repeated, told

import fusetools
from fusetools.experiments.estimate import estimate

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "samples/build"
FUSETOOLS = [sys.executable, "-m", "fusetools"]
# Time of a stat in us: the fastest quarter of 200 batches of 50. The program starts at the first
# line of its input.
LOOP = """
import os, sys, time
input()
used = lambda: int(open("/proc/self/schedstat").read().split()[0])
found, before = [], used()
for _ in range(200):
    begin = time.perf_counter()
    for _ in range(50):
        os.stat(sys.argv[1])
    found.append((time.perf_counter() - begin) / 50 * 1e6)
print("QUICK", sorted(found)[50], "CPU", used() - before)
"""


@contextmanager
def mounted(folder: Path, kind: str) -> Iterator[tuple[Path, int]]:
    """Yield a file below a mount of that kind, and its daemon, which is a child of this process."""
    tree, mount = folder / "tree", folder / kind
    if not tree.exists():
        subprocess.run([BUILD / "make_tree", tree], check=True)
    mount.mkdir()
    if kind == "bindfs":
        uncached = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
        command = ["bindfs", "-f", "-o", uncached, str(tree), str(mount)]
    else:
        daemon = str(BUILD / kind / "samplefs")
        command = [daemon, "-f", "--kernel-cache", "0", str(tree), str(mount)]
    with subprocess.Popen(command) as process:
        try:
            while not mount.is_mount():
                time.sleep(0.01)
            yield mount / "deep/1", process.pid
        finally:
            process.terminate()


def quick(text: str) -> float:
    found = re.search(r"QUICK (\S+)", text)
    assert found, text
    return float(found[1])


def run(prefix: list[str], loop: list[str]) -> float:
    done = subprocess.run([*prefix, *loop], input="\n", text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return quick(done.stdout)


def by_bpftrace(loop: list[str], probes: list[str]) -> float:
    """Return the time of a stat in us while bpftrace fills histograms of requests and callbacks."""
    events = ["tracepoint:fuse:fuse_request_send { @begin[args->unique] = nsecs; }"]
    events += ["tracepoint:fuse:fuse_request_end { @took = hist(nsecs - @begin[args->unique]); }"]
    for place in probes:
        events += [f"uprobe:{place} {{ @enter[tid] = nsecs; }}"]
        events += [f"uretprobe:{place} {{ @call = hist(nsecs - @enter[tid]); }}"]
    command = ["bpftrace", "-e", " ".join(['BEGIN { printf("armed\\n"); }', *events])]
    command += ["-B", "line"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as tool:
        assert tool.stdout is not None
        assert any("armed" in line for line in tool.stdout), "bpftrace did not begin"
        try:
            return run([], loop)
        finally:
            tool.send_signal(signal.SIGINT)
            tool.communicate(timeout=60)


def callbacks() -> list[str]:
    """Return FILE:ADDRESS of the sample client's functions that a stat calls."""
    (library,) = (BUILD / "as-shipped").glob("libcvmfs_fuse3.so.*")
    text = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(\w+) t _ZN5cvmfsL\d+cvmfs_(?:lookup|getattr)E", text)
    return [f"{library}:0x{int(address, 16):x}" for address in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="at most so many")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ["as-shipped", *["bindfs"] * bool(shutil.which("bindfs"))]:
            with mounted(folder, kind) as (path, daemon):
                compare(kind, folder, path, options.rounds)
                watch(path)
                hold_estimate(folder, path, daemon, min(options.rounds, 6))


def compare(kind: str, folder: Path, path: Path, rounds: int) -> None:
    data = folder / "perf.data"
    loop = [sys.executable, "-c", LOOP, str(path)]
    record = [*FUSETOOLS, "record", "--mount", str(path.parents[1]), "-o", str(data)]
    tools = {
        "nothing": [],
        **{
            f"record --detail {detail}": [*record, "--detail", detail, "--"]
            for detail in ("latency", "stages", "stacks")
        },
        "perf record -g": ["perf", "record", "-q", "-g", "-o", str(folder / "own.data"), "--"],
        "strace -f -c": ["strace", "-f", "-c", "-o", os.devnull],
    }
    tools = {name: argv for name, argv in tools.items() if not argv or shutil.which(argv[0])}
    probes = callbacks() if kind == "as-shipped" and shutil.which("bpftrace") else []
    sizes: dict[str, float] = {}

    def measure(name: str, argv: list[str]) -> float:
        took = run(argv, loop)
        if name.startswith("record "):
            sizes[name] = data.stat().st_size / (200 * 50 * 3)
        return took

    measures = {name: partial(measure, name, argv) for name, argv in tools.items()}
    if probes:
        measures["bpftrace"] = partial(by_bpftrace, loop, probes)
    found = repeated(measures, "nothing", rounds)
    bare = found["nothing"]
    print(f"{kind}: a stat takes {statistics.median(bare):.1f} us")
    for name, times in found.items():
        size = f"  {sizes[name]:6,.0f} bytes a request" if name in sizes else ""
        print(f"  {name:24} {told(ratio(times, bare))}{size}")
    times = []
    for _ in range(3):
        begin = time.monotonic()
        subprocess.run([*record, "--", "true"], check=True, capture_output=True)
        times.append(time.monotonic() - begin)
    print(f"  record -- true           {min(times):6.2f} s")


# A program that calls stat until its input ends, at a limited rate.
PACED = """
import os, select, sys, time
begin, n, most = time.monotonic(), 0, float(sys.argv[2])
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(min(int((time.monotonic() - begin) * most) - n, 100)):
        os.stat(sys.argv[1])
        n += 1
    if n >= (time.monotonic() - begin) * most - 1:
        time.sleep(0.002)
"""


def watch(path: Path) -> None:
    """Print the CPU time that `top` takes, including perf's, beside 5,000 requests per second and
    beside two callers at full speed."""
    command = [*FUSETOOLS, "top", "--mount", str(path.parents[1]), "--json"]
    for callers, most in ((1, 5000 / 3), (2, float("1e9"))):
        loop = [sys.executable, "-c", PACED, str(path), str(most)]
        loops = [subprocess.Popen(loop, stdin=subprocess.PIPE) for _ in range(callers)]
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top:
                assert top.stdout is not None
                found = [json.loads(line) for line, _ in zip(top.stdout, range(6))][1:]
                top.send_signal(signal.SIGINT)
                top.communicate(timeout=60)
        finally:
            for one in loops:
                one.communicate(b"\n")
        seconds = sum(one["seconds"] for one in found)
        rate = sum(row["requests"] for one in found for row in one["rows"]) / seconds
        cpu = sum((one["own_cpu"] + one["perf_cpu"]) * one["seconds"] for one in found) / seconds
        lost = sum(one["lost"] for one in found)
        print(f"  top beside {rate:8,.0f} requests/s {cpu:6.1%} of a CPU, {lost} lost")


def hold_estimate(folder: Path, path: Path, daemon: int, rounds: int) -> None:
    """Print the CPU time that recording adds to caller and daemon, beside the recording's own
    estimate. Both run on one CPU, so that other work hardly changes it."""
    subprocess.run(["taskset", "-a", "-c", "-p", "0", str(daemon)], check=True, capture_output=True)
    loop = ["taskset", "-c", "0", sys.executable, "-c", LOOP, str(path)]
    data = folder / "perf.data"
    record = [*FUSETOOLS, "record", "--mount", str(path.parents[1]), "-o", str(data)]
    stats = 200 * 50

    def used(prefix: list[str]) -> float:
        before = of_threads(daemon)
        done = subprocess.run([*prefix, *loop], input="\n", text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        caller = re.search(r"CPU (\d+)", done.stdout)
        assert caller, done.stdout
        return (int(caller[1]) + of_threads(daemon) - before) / stats / 1000

    for detail in ("latency", "stages", "stacks"):
        added, said = [], []
        for _ in range(rounds):
            bare = used([])
            added.append(used([*record, "--detail", detail, "--"]) - bare)
            took = fusetools.open(data).session.took
            said.append(took.ns / stats / 1000 if took else 0.0)
        of = estimate([s / a for s, a in zip(said, added)])
        figures = f"{statistics.median(added):5.1f} us of CPU time, {statistics.median(said):5.1f}"
        print(f"  {detail:8} adds {figures} by its own estimate", end="")
        print(f": {of.median:.2f} times ({of.low:.2f} to {of.high:.2f})")


def of_threads(pid: int) -> int:
    """Return the CPU time in ns that a process's threads have used."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


if __name__ == "__main__":
    main()
