"""Speed beside stock perf in the same run, as ratios: `make bench`.

Pairs are repeated until each ratio is known to 5 %, or the machine is too noisy (pairs.py). Prints
and never asserts: machines differ. core/examples/make_recording makes the recording.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pairs import ratio, repeated, told

from fusetools.cli import COMMANDS

ROOT = Path(__file__).parents[2]
FUSETOOLS = str(Path(sys.executable).parent / "fusetools")
DATA = Path(__file__).parent / "data"


def recording(events: int) -> Path:
    """Return a recording of about that many events, made once."""
    path = DATA / f"{events}.data"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        print(f"making a recording of {events:,} events", flush=True)
        command = [str(ROOT / "target/release/examples/make_recording"), str(path), str(events)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def seconds(command: str) -> Callable[[], float]:
    """Return a function that runs a command, and returns the seconds that it took."""

    def run() -> float:
        begin = time.perf_counter()
        subprocess.run(shlex.split(command), check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begin

    run()  # once, to warm the caches
    return run


def peak_anonymous(command: list[str]) -> int:
    """Return the peak of RssAnon (bytes) of the command, sampled every 2 ms."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        peak = 0
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            for line in status.read_text().splitlines():
                if line.startswith("RssAnon:"):
                    peak = max(peak, int(line.split()[1]) * 1024)
            time.sleep(0.002)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4_500_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, object] = {}

    def compare(base: str, commands: Mapping[str, str]) -> None:
        """Print the seconds of ``base``, and those of each other command as a ratio to it."""
        found = repeated({name: seconds(command) for name, command in commands.items()}, base)
        for name, values in found.items():
            of = ratio(values, found[base])
            figures[name] = {"seconds": statistics.median(values), f"over {base}": vars(of)}
            if not options.json:
                than = f"  {told(of)} {base}" if name != base else ""
                print(f"{name:36} {statistics.median(values):8.3f} s{than}", flush=True)

    data = recording(options.events)
    megabytes = data.stat().st_size / 1e6
    hist = f"{FUSETOOLS} hist -i {data}"
    subprocess.run(["cat", str(data)], check=True, stdout=subprocess.DEVNULL)  # warm the cache
    if not options.json:
        print(f"{options.events:,} events, {megabytes:,.0f} MB")
    flame = f"{FUSETOOLS} flame --offcpu -i {data} -o {DATA / 'flame.folded'}"
    commands = {
        "hist": hist,
        "hist lookup": f"{hist} lookup",
        "hist, on one CPU": f"taskset -c 0 {hist}",
        "perf script": f"perf script -i {data}",
        "flame --offcpu": flame,
    }
    # Commands that fold the same stacks, if installed.
    for folder in ("stackcollapse-perf.pl", "inferno-collapse-perf"):
        if shutil.which(folder):
            commands[folder] = f"sh -c 'perf script -i {data} | {folder} >/dev/null'"
    compare("hist", commands)
    figures["hist_anonymous_megabytes"] = peak = peak_anonymous(hist.split()) / 1e6
    if not options.json:
        print(f"{'hist, peak of its own memory':36} {peak:8.0f} MB")

    for events in (options.events * share // 45 for share in (1, 10, 100)):
        path = recording(events)
        subprocess.run(["cat", str(path)], check=True, stdout=subprocess.DEVNULL)
        names = {f"{name} of {events:,}": name for name in ("hist", "stages")}
        base = next(iter(names))
        compare(base, {of: f"{FUSETOOLS} {name} -i {path}" for of, name in names.items()})

    helps = {f"{name} --help": f"{FUSETOOLS} {name} --help" for name in COMMANDS}
    compare("import click", {"import click": f"{sys.executable} -c 'import click'", **helps})
    if options.json:
        print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
