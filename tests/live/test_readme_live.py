"""The README's commands run as printed, in their order, and print the README's output.

BLESS=1 writes their output into it; a line "…" stands for the rest of an output.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
MORE = "…"
END = "end of command"

# Figures with their units, and bars of stages. They differ from run to run.
FIGURE = re.compile(r"-?\d[\d,.]*(?: ?(?:ns|us|ms|s|kB|MB|B|%)\b)?%?")
BAR = re.compile(r"\b[vsqcdrwa]{12,20}\b")


@dataclass
class Command:
    """A command, and the lines of the README with its output."""

    text: str
    first: int
    last: int


def commands(lines: list[str]) -> list[Command]:
    """Return the commands of all blocks that show a terminal."""
    found: list[Command] = []
    inside = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            inside = line == "```" and not inside
        elif inside and line.startswith("$ "):
            found.append(Command(line[2:], number + 1, number + 1))
        elif inside and found and found[-1].last == number:
            found[-1].last = number + 1
    return found


def printed(texts: list[str]) -> list[list[str]]:
    """Run commands one after the other, in a mount namespace with an empty /tmp."""
    # The slowest request is that of the README only if none waits for a CPU meanwhile: sched(7).
    script = ["{ echo -15 >/proc/self/autogroup; } 2>/dev/null"]
    script += ["mount -t tmpfs none /tmp", "mkdir /tmp/clone", "cd /tmp/clone"]
    script += [f"ln -s {shlex.quote(str(ROOT))}/* .", "rm -f perf.data", "exec 2>&1"]
    for text in texts:
        script += [text.replace("sudo ", ""), f"echo {shlex.quote(END)}"]
    script += ["kill -9 $(jobs -p); pkill -KILL --ns $$ --nslist mnt samplefs; umount -l /tmp/hang"]
    path = f"{ROOT}/.venv/bin:{os.environ['PATH']}"
    # A file, not a pipe: the daemons keep it open.
    with tempfile.TemporaryFile("w+") as output:
        subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join(script)],
            env={**os.environ, "PATH": path, "COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            timeout=240,
            check=False,
        )
        output.seek(0)
        text = output.read()
    parts = text.split(f"{END}\n")
    assert len(parts) == len(texts) + 1, text
    return [part.splitlines() for part in parts[:-1]]


def shape(lines: list[str]) -> list[str]:
    """Return the words of an output, without those that differ from run to run."""
    text = FIGURE.sub("#", BAR.sub("~", "\n".join(lines)))
    return [word for word in text.split() if not set(word) <= set("█▏▎▍▌▋▊▉")]


def test_the_readme_runs_as_printed() -> None:
    lines = README.read_text().splitlines()
    found = commands(lines)
    assert len(found) > 10
    outputs = printed([command.text for command in found])
    if os.environ.get("BLESS"):
        for command, output in reversed(list(zip(found, outputs))):
            shown = lines[command.first : command.last]
            if MORE in shown:
                output = [*output[: shown.index(MORE)], MORE]
            lines[command.first : command.last] = [line.rstrip() for line in output]
        README.write_text("\n".join(lines) + "\n")
        return
    for command, output in zip(found, outputs):
        shown = lines[command.first : command.last]
        if MORE in shown:
            shown = shown[: shown.index(MORE)]
            output = output[: len(shown) + 3]
        wanted, got = shape(shown), shape(output)
        matcher = difflib.SequenceMatcher(None, wanted, got, autojunk=False)
        same = sum(block.size for block in matcher.get_matching_blocks())
        text = "\n".join(output)
        assert same >= 0.85 * len(wanted), f"$ {command.text}\n{text}\n{wanted}\n{got}"
        assert bool(wanted) == bool(got), f"$ {command.text}\n{text}"
