"""Which functions of an x86-64 file keep a frame pointer, as pyelftools reads its unwind tables."""

from __future__ import annotations

from pathlib import Path

from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

RBP = 6


def by_pyelftools(path: Path) -> float | None:
    """Of the functions that save rbp, the share, by bytes, whose frame is found by it."""
    kept = lost = 0
    with path.open("rb") as file:
        for entry in ELFFile(file).get_dwarf_info().EH_CFI_entries():
            if not isinstance(entry, FDE):
                continue
            size = entry["address_range"]
            rows = entry.get_decoded().table
            if any(row["cfa"].reg == RBP for row in rows):
                kept += size
            elif any(RBP in row and row[RBP].type == "OFFSET" for row in rows):
                lost += size
    return kept / (kept + lost) if kept + lost else None
