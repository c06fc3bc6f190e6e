"""Tries combinations of limits, options, faults and kills on recordings that a user makes by sudo.

`leaks.py N [--seed S] [--seconds T]` counts tokens of other users' stacks that the user can read.
Each combination is printed with the seed and its number, so that it can be repeated alone.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "unit"), str(TESTS / "live")]

from mounts import alone  # noqa: E402
from spying import Spy, chosen, clean  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    query = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fusetools-leaks-", dir="/var/tmp"))
    begin = time.monotonic()
    found: list[str] = []
    became: collections.Counter[str] = collections.Counter()
    tried = 0
    try:
        with alone(), Spy(folder) as spy:
            while tried < query.times and time.monotonic() - begin < query.seconds:
                tried += 1
                case = chosen(random.Random(f"{query.seed} {tried}"))
                what = f"{tried} (seed {query.seed}): {case}"
                told, place = spy.run(case)
                reads = spy.reads(told.text)
                text = clean()
                reads += spy.reads(text)
                handed = any(
                    path.is_file() for path in place.glob("out*") if path.suffix != ".json"
                )
                kept = " for root alone" in text or "is root's" in told.text
                outcome = "handed over" if handed else "kept for root" if kept else "nothing"
                became[outcome] += 1
                if "Traceback" in told.text or "panicked" in told.text:
                    reads.append("a traceback on the terminal")
                print(
                    f"{what}: {outcome}, status {told.status}{' '.join(['', *reads])}", flush=True
                )
                found += [f"{what}: {one}\n{told.text}{text}" for one in reads]
                spy.forget(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in found:
        print(line)
    seconds = time.monotonic() - begin
    summary = f"{tried} combinations, seed {query.seed}, {seconds:.0f} s: {dict(became)}"
    print(f"{summary}; {len(found)} leaks")
    return 1 if found or not became["handed over"] else 0


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("run it as root")
    sys.exit(main())
