"""The shared recordings of real hosts: beside the repository, or in FUSETOOLS_DATA."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("FUSETOOLS_DATA", Path(__file__).parents[2].parent / "shared/data"))


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
