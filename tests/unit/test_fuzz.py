"""A short part of `make fuzz`: damaged texts that Python reads, and our reader beside stock
perf's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples" / "recordings" / "demo.data"


def fuzz(program: str, *arguments: object) -> str:
    words: list[str | Path] = [
        sys.executable,
        ROOT / "tests" / "fuzz" / program,
        *map(str, arguments),
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_texts_are_read_or_refused() -> None:
    lines = fuzz("texts.py", 60, "--seed", 14).splitlines()
    assert len(lines) == 11 and all(": 60 texts, " in line for line in lines)


@pytest.mark.skipif(shutil.which("perf") is None, reason="this host has no perf")
@pytest.mark.timeout(900)
def test_damaged_recordings_are_read_as_stock_perf_reads_them() -> None:
    """If both accept them: see differential.py."""
    assert "'same': " in fuzz("differential.py", 10, DEMO, "--seed", 14)
