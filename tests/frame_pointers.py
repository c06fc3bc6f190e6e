"""Functions of an x86-64 file that keep a frame pointer, from the unwind tables that readelf
prints."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def by_readelf(path: Path) -> float | None:
    """Return the share, by bytes, of functions whose frame is found through rbp, of those that save
    it."""
    kept = lost = 0
    command: list[str | Path] = ["readelf", "--debug-dump=frames", path]
    # readelf complains about unknown frames, such as signal frames.
    shown = subprocess.run(command, capture_output=True, text=True).stdout
    assert " FDE " in shown
    for entry in shown.split("\n\n"):
        span = re.search(r" FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", entry)
        if not span or "DW_CFA_def_cfa_expression" in entry:
            continue
        size = int(span[2], 16) - int(span[1], 16)
        if re.search(r"DW_CFA_def_cfa(_register|_sf)?: r6 \(rbp\)", entry):
            kept += size
        elif re.search(r"DW_CFA_offset(_extended(_sf)?)?: r6 \(rbp\)", entry):
            lost += size
    return kept / (kept + lost) if kept + lost else None
