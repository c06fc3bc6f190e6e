"""The sample file system as the tests here use it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import fusetools

REPOSITORY = Path(__file__).parents[2]
SAMPLES = REPOSITORY / "samples" / "build"
FUSETOOLS = Path(sys.prefix) / "bin" / "fusetools"
TRACING = Path("/sys/kernel/tracing")


def own_counts(text: str) -> Counter[str]:
    """Callback -> calls, as the sample file system counted them itself (`internal affairs`)."""
    counts = Counter[str]()
    heading = ""
    for line in text.splitlines():
        if re.fullmatch("[A-Z][A-Za-z-]+", line):
            heading = line.lower()
        elif total := re.match(r" *total : +(\d+)$", line):
            name = {"multi-forget": "forget_multi"}.get(heading, heading)
            counts[f"cvmfs_{name}"] = int(total[1])
    return counts


# Shell: `own FILE` has the sample write its own counts there.
OWN = f"own() {{ {SAMPLES}/with-symbols/samplefs --talk /run/talk internal affairs > $1; }}"


def own(folder: Path, way: str) -> Counter[str]:
    """Callback -> calls during a recording, as the sample counted them, with those never called."""
    before, after = (own_counts((folder / f"{way}.{w}").read_text()) for w in ("before", "after"))
    return Counter({name: count - before[name] for name, count in after.items()})


def counts(recording: Path, layer: str) -> Counter[str]:
    """Function -> calls in a recording, read here: in the guest it would take 20 times as long."""
    rows = fusetools.open(recording).counts().counts
    return Counter({row.function: row.count for row in rows if row.layer == layer})


def mount(*options: str, build: str = "with-symbols") -> str:
    """Shell: mounts it on /run/mount; it talks on /run/talk."""
    samplefs = f"{SAMPLES}/{build}/samplefs --kernel-cache 0 --socket /run/talk"
    return f"""mkdir /run/mount
{SAMPLES}/make_tree /run/tree
{" ".join((samplefs, *options))} /run/tree /run/mount"""


def until_recording(said: str = "said") -> str:
    """Shell: until what was just started, with its errors in that file, records."""
    return f"""until grep -q 'fusetools: tracing' {said}; do
  kill -0 $! || {{ cat {said} >&2; exit 1; }}
  sleep 0.3
done"""


# Shell: a command that must not succeed (`set -e` says nothing of `! command`).
FAILS = r"""fails() {
  if "$@"; then
    echo "it succeeded: $*" >&2
    exit 1
  fi
}
"""

# Shell: command lines of the perf and trace-cmd that record. A small Debian has no pgrep.
RUNNING = r"""running() {
  for process in /proc/[0-9]*; do
    tr '\0' ' ' < $process/cmdline | grep -E '(perf|trace-cmd) record' || true
  done 2> /dev/null
}
"""

# Shell: what fusetools has left behind, in the file `left`.
LEFT = f"""{RUNNING}
{{ cat {TRACING}/dynamic_events {TRACING}/uprobe_events
find /sys/fs/cgroup -name 'fusetools*'; running; }} > left || true
"""
