"""Blank names of processes and paths of mapped files in a recording: `blank.py RECORDING KEPT...`

Kernel threads are kept, and files that the processes KEPT map from common paths (COMMON).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Names of kernel threads, and placeholders for unknown names.
KERNEL = r"swapper.*|kworker.*|migration/.*|ksoftirqd/.*|rcu.*|k[a-z]+d|[a-z]+/\d+|-+|:\d+"
# Files that have the same path on every host.
COMMON = r"\[.*|/usr/.*|/opt/samples/.*"


def shown(path: str) -> str:
    """Return stock perf's output about tasks and their mappings."""
    command = ["perf", "script", "-i", path, "--show-task-events", "--show-mmap-events"]
    command += ["-F", "comm,event,trace"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def names(path: str, text: str) -> set[str]:
    """Return the names of all tasks, also those in the tracing data's list (`PID NAME`)."""
    found = {line[:16].strip() for line in text.splitlines() if line[:1].strip()}
    found |= set(re.findall(r"PERF_RECORD_COMM(?: exec)?: (.+):-?\d+/", text))
    found |= set(re.findall(r"(?:prev_|next_)?comm=(.*?) (?:prev_|next_)?pid=", text))
    listed = re.findall(rb"(?<=\n)\d+ ([ -~]{1,15})(?=\n)", Path(path).read_bytes())
    return found | {name.decode() for name in listed}


def files(text: str, kept: tuple[str, ...]) -> set[str]:
    """Return the paths of mapped files, without the kept processes' common ones."""
    mapped = re.findall(r"(?m)^(.{16}) PERF_RECORD_MMAP2? .*\]: \S+ (.+)$", text)
    common = {f for name, f in mapped if name.strip() in kept and re.fullmatch(COMMON, f)}
    return {f for _, f in mapped if not re.fullmatch(r"\[.*|-+", f)} - common


def unwanted(path: str, kept: tuple[str, ...]) -> set[str]:
    """Return the names and paths to blank."""
    text = shown(path)
    tasks = {n for n in names(path, text) if n not in kept and not re.fullmatch(KERNEL, n)}
    return tasks | files(text, kept)


def main(path: str, *kept: str) -> None:
    data = Path(path).read_bytes()
    for name in sorted(unwanted(path, kept), key=len, reverse=True):
        # Match a field of a record, or a line "PID NAME" of the tracing data.
        place = rb"(?<![\w/.:-])" + re.escape(name.encode()) + rb"(?=[\0\n])"
        data = re.sub(place, b"-" * len(name.encode()), data)
    Path(path).write_bytes(data)
    if left := unwanted(path, kept):
        sys.exit(f"{path}: still there: {', '.join(sorted(left))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
