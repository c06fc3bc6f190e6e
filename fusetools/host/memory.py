"""Memory of another process."""

from __future__ import annotations

import contextlib
import os
import struct
from mmap import PAGESIZE


class Memory:
    """The memory of a process, by its directory in /proc or that of a thread; empty if unreadable.

    Only present pages are read (proc_pid_pagemap(5)). For an absent page of a mapped file the
    kernel would ask the file's file system, which may hang, and would keep the process's memory map
    locked meanwhile.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._memory = self._pages = -1

    def __enter__(self) -> Memory:
        with contextlib.suppress(OSError):
            self._pages = os.open(f"{self._place}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self._memory = os.open(f"{self._place}/mem", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._pages, self._memory):
            if descriptor >= 0:
                os.close(descriptor)

    def peek(self, address: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if self._memory < 0 or not 0 < address < 1 << 63 or size <= 0:
            return b""
        first, last = address // PAGESIZE, (address + size - 1) // PAGESIZE
        try:
            entries = os.pread(self._pages, 8 * (last + 1 - first), 8 * first)
            # Return the two highest bits of the pages' entries: in memory, swapped out.
            words = struct.unpack(f"={len(entries) // 8}Q", entries[: len(entries) // 8 * 8])
            there = next(
                (number for number, word in enumerate(words) if not word >> 62), len(words)
            )
            size = min(size, (first + there) * PAGESIZE - address)
            return os.pread(self._memory, size, address) if size > 0 else b""
        except (OSError, OverflowError):
            return b""
