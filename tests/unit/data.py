"""The shared recordings of real hosts: beside the repository, or in FUSETOOLS_DATA."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("FUSETOOLS_DATA", ROOT.parent / "shared/data"))


def find(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no {name} in {FOLDER} (FUSETOOLS_DATA)")
    return path


def unpack(name: str, to: Path) -> Path:
    """Decompress the recording ``name`` into the file ``to``."""
    source = find(name)
    if not shutil.which("zstd"):
        pytest.skip("no zstd")
    subprocess.run(["zstd", "--quiet", "--decompress", str(source), "-o", str(to)], check=True)
    return to


def example(name: str) -> Path:
    """Return an example program of the core, built."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo on this host")
    # With these packages (Makefile: CORE) cargo uses what it has compiled already.
    command = ["cargo", "build", "--quiet", "--release", "--package", "fusetools-core"]
    command += ["--package", "fusetools-py", "--example", name]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / name
