"""Speed beside stock perf in the same run, as ratios: `make bench`.

Prints and never asserts: machines differ. core/examples/make_recording makes the recording.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def timed(*commands: str, runs: int = 5) -> list[float]:
    """Return the median seconds of each command: hyperfine runs them together, after a warm-up."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = ["hyperfine", "-N", "--warmup", "1", "--runs", str(runs), "--style", "none"]
        command += ["--export-json", out.name, *commands]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return [float(r["median"]) for r in json.load(out)["results"]]


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
    figures: dict[str, float] = {}

    data = recording(options.events)
    hist = f"{FUSETOOLS} hist -i {data}"
    subprocess.run(["cat", str(data)], check=True, stdout=subprocess.DEVNULL)  # warm the cache
    ours = timed(hist, f"{hist} lookup")
    (theirs,) = timed(f"perf script -i {data}", runs=2)
    figures["megabytes"] = data.stat().st_size / 1e6
    figures["hist_seconds"], figures["hist_lookup_seconds"] = ours
    figures["perf_script_seconds"] = theirs
    figures["perf_script_over_hist"] = theirs / ours[0]
    figures["perf_script_over_hist_lookup"] = theirs / ours[1]
    figures["hist_anonymous_megabytes"] = peak_anonymous(hist.split()) / 1e6

    flame = f"{FUSETOOLS} flame --offcpu -i {data} -o {DATA / 'flame.folded'}"
    (ours[0],) = timed(flame)
    figures["flame_seconds"] = ours[0]
    # Commands that fold the same stacks, if installed.
    for folder in ("stackcollapse-perf.pl", "inferno-collapse-perf"):
        if shutil.which(folder):
            (theirs,) = timed(f"sh -c 'perf script -i {data} | {folder} >/dev/null'", runs=1)
            figures[f"{folder}_over_flame"] = theirs / ours[0]

    for events in (options.events * share // 45 for share in (1, 10, 100)):
        path = recording(events)
        subprocess.run(["cat", str(path)], check=True, stdout=subprocess.DEVNULL)
        commands = [f"{FUSETOOLS} {name} -i {path}" for name in ("hist", "stages")]
        hist_seconds, stages_seconds = timed(*commands, runs=3)
        figures[f"hist_seconds_{events}"] = hist_seconds
        figures[f"stages_over_hist_{events}"] = stages_seconds / hist_seconds

    helps = [f"{FUSETOOLS} {name} --help" for name in COMMANDS]
    click, *starts = timed(f"{sys.executable} -c 'import click'", *helps, runs=20)
    slowest, name = max(zip(starts, COMMANDS))
    figures[f"slowest_help_{name}_over_import_click"] = slowest / click

    if options.json:
        print(json.dumps(figures, indent=1))
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:{width}}  {value:12,.3f}")


if __name__ == "__main__":
    main()
