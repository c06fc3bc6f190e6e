"""Blanks names of processes in a recording: `blank.py RECORDING KEPT...`; kernel threads stay."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# What has no name of its own, and what the kernel calls its threads.
KERNEL = r"swapper.*|kworker.*|migration/.*|ksoftirqd/.*|rcu.*|k[a-z]+d|[a-z]+/\d+|----*|:\d+"


def names(path: str) -> set[str]:
    """Every name of a task that stock perf shows."""
    command = ["perf", "script", "-i", path, "--show-task-events", "-F", "comm,event,trace"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {line[:16].strip() for line in text.splitlines() if line[:1].strip()}
    found |= set(re.findall(r"PERF_RECORD_COMM(?: exec)?: (.+):-?\d+/", text))
    found |= set(re.findall(r"(?:prev_|next_)?comm=(.*?) (?:prev_|next_)?pid=", text))
    return found


def main(path: str, *kept: str) -> None:
    unwanted = {n for n in names(path) if n not in kept and not re.fullmatch(KERNEL, n)}
    data = Path(path).read_bytes()
    for name in sorted(unwanted, key=len, reverse=True):
        # A field of a record, or a line "PID NAME" of the tracing data.
        place = rb"(?<![\w/.:-])" + re.escape(name.encode()) + rb"(?=[\0\n])"
        data = re.sub(place, b"-" * len(name.encode()), data)
    Path(path).write_bytes(data)
    left = names(path) & unwanted
    if left:
        sys.exit(f"{path}: still there: {', '.join(sorted(left))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
