"""The sample file system as the tests here use it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SAMPLES = REPOSITORY / "samples" / "build"


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
