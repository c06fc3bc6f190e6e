"""Commands of fusetools as the live tests run them, mainly `fusetools record`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hanging import EMULATED, FUSETOOLS
from mounts import HANGS
from sample import SampleMount
from script import events, needs_perf

import fusetools

# In a guest the command is a fork (tests/vm/forked.py).
COMMAND = [str(FUSETOOLS)] if EMULATED else [sys.executable, "-m", "fusetools"]
HURRIED = [sys.executable, str(Path(__file__).with_name("hurried.py"))]


def run(
    *words: object, check: bool = False, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=check)


def printed(*words: object) -> str:
    return run(*words, check=True).stdout


def recorded(output: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Make a recording of the workload, which must succeed."""
    needs_perf()
    done = run("record", "-o", output, *arguments)
    assert done.returncode == 0, done.stderr
    return done


def opened(output: Path, mounts: list[SampleMount], *workload: object) -> fusetools.Recording:
    """Make a recording of these mounts, which must succeed."""
    options = [word for mount in mounts for word in ("--mount", mount.path)]
    recorded(output, *options, "--", *workload)
    return fusetools.open(output)


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    return {**kept, **more}


def start(directory: Path, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*more.pop("command", COMMAND), "record", *map(str, arguments)],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=more.pop("env", environment()),
        **more,
    )


class Done:
    def __init__(self, process: subprocess.Popen[str], seconds: float = HANGS) -> None:
        self.stdout, self.stderr = process.communicate(timeout=seconds)
        self.status = process.returncode


def record(directory: Path, *arguments: object, **more: Any) -> Done:
    return Done(start(directory, *arguments, **more))


def begin(directory: Path, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    """Start a recording, and wait for the line that reports its begin."""
    process = start(directory, *arguments, **more)
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if "fusetools: tracing" in line:
            return process
    process.communicate()
    pytest.fail(f"it did not begin: {seen}")


def counts(data: Path) -> Counter[str]:
    return Counter(event.name for event in events(data))


def session(data: Path) -> dict[str, Any]:
    text = data.read_bytes()
    at = text.index(b'{"format": ')
    found: dict[str, Any] = json.JSONDecoder().raw_decode(
        text[at : at + 65536].split(b"\0")[0].decode()
    )[0]
    return found


def children(parent: int, comm: str) -> list[int]:
    """Return the children of a process that have that name."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/comm").read_text() == f"{comm}\n":
                    found.append(int(pid))
    return found
