"""The sample file system as the tests in guests use it."""

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
    """Return callback -> calls, as the sample file system counted them itself (`internal
    affairs`)."""
    counts = Counter[str]()
    heading = ""
    for line in text.splitlines():
        if re.fullmatch("[A-Z][A-Za-z-]+", line):
            heading = line.lower()
        elif total := re.match(r" *total : +(\d+)$", line):
            name = {"multi-forget": "forget_multi"}.get(heading, heading)
            counts[f"cvmfs_{name}"] = int(total[1])
    return counts


# Shell code: `own FILE` makes the sample write its own counts there.
OWN = f"own() {{ {SAMPLES}/with-symbols/samplefs --talk /run/talk internal affairs > $1; }}"


def own(folder: Path, way: str) -> Counter[str]:
    """Return callback -> calls during a recording, by the sample's counts, including those never
    called."""
    before, after = (own_counts((folder / f"{way}.{w}").read_text()) for w in ("before", "after"))
    return Counter({name: count - before[name] for name, count in after.items()})


def counts(recording: Path, layer: str) -> Counter[str]:
    """Return function -> calls in a recording, read here: in the guest it would take 20 times as
    long."""
    rows = fusetools.open(recording).counts().counts
    return Counter({row.function: row.count for row in rows if row.layer == layer})


def mount(*options: str, build: str = "with-symbols") -> str:
    """Return shell code that mounts it on /run/mount, with its command socket /run/talk."""
    samplefs = f"{SAMPLES}/{build}/samplefs --kernel-cache 0 --socket /run/talk"
    return f"""mkdir /run/mount
{SAMPLES}/make_tree /run/tree
{" ".join((samplefs, *options))} /run/tree /run/mount"""


def until_recording(said: str = "said") -> str:
    """Return shell code that waits until a started recording records; its errors are in that
    file."""
    return f"""until grep -q 'fusetools: tracing' {said}; do
  kill -0 $! || {{ cat {said} >&2; exit 1; }}
  sleep 1  # a look takes 0.2 s of CPU time from what it waits for
done"""


# Return shell code for a command that must fail (`set -e` ignores `! command`).
FAILS = r"""fails() {
  if "$@"; then
    echo "it succeeded: $*" >&2
    exit 1
  fi
}
"""

# Return shell code that lists running recorders. A small Debian has no pgrep; a program for each
# process would take 10 s of CPU time.
RUNNING = r"""running() {
  cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' ' ' | grep -oE '(perf|trace-cmd) record' || true
}
"""

# Return shell code that lists the leftovers of fusetools in the file `left`.
LEFT = f"""{RUNNING}
{{ cat {TRACING}/dynamic_events {TRACING}/uprobe_events
find /sys/fs/cgroup -name 'fusetools*'; running; }} > left || true
"""
