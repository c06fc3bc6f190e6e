"""A bounded reader of tar files, for what a recording script leaves.

It knows regular files and directories alone: no links, no devices, no extensions that it would have
to hold in memory. The caller decides where each file is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

BLOCK = 512
MOST_FILES = 4096
_COPIED = 1 << 20  # bytes at once


class Damaged(Exception):
    """Why it is no such tar file."""


def unpack(source: BinaryIO, place: Callable[[str], int | None]) -> list[str]:
    """Copy the files of a tar file (ustar, or as GNU tar writes it). Return their names.

    ``place``: called with each name, returns the descriptor of a new file, which is closed here;
    None: the tar file must not hold it. Raise Damaged if it is damaged, or holds anything else.
    """
    names: list[str] = []
    while True:
        head = source.read(BLOCK)
        if len(head) < BLOCK:
            raise Damaged("it ends early")
        if head == bytes(BLOCK):
            return names
        name, size, kind = _entry(head)
        if kind == b"5":
            continue
        if kind not in (b"0", b"\0"):
            raise Damaged(f"{name} is no regular file")
        if len(names) >= MOST_FILES or name in names:
            raise Damaged("it holds too many files, or one twice")
        descriptor = place(name)
        if descriptor is None:
            raise Damaged(f"it holds {name}")
        names.append(name)
        with os.fdopen(descriptor, "wb") as file:
            left = size
            while left:
                block = source.read(min(left, _COPIED))
                if not block:
                    raise Damaged("it ends early")
                file.write(block)
                left -= len(block)
        source.read(-size % BLOCK)


def _entry(head: bytes) -> tuple[str, int, bytes]:
    """Return the name, size and type in a header."""
    total = sum(head[:148]) + sum(b" " * 8) + sum(head[156:])
    if _number(head[148:156]) != total:
        raise Damaged("a header's checksum is wrong")
    name = os.fsdecode(head[:100].split(b"\0")[0])
    return name.removeprefix("./"), _number(head[124:136]), head[156:157]


def _number(field: bytes) -> int:
    """Return a number: octal digits, or binary with the highest bit set (8 GiB and more)."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
    text = field.strip(b"\0 ")
    if not text.isdigit() or b"8" in text or b"9" in text:
        raise Damaged("it is no tar file")
    return int(text, 8)
