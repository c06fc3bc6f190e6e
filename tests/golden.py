"""Outputs kept in tests/golden: `BLESS=1 pytest` rewrites them, git shows what changed."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).with_suffix("")


def check(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("BLESS"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no {path}: run the test with BLESS=1 and look at what it wrote"
    assert text == path.read_text(encoding="utf-8")
