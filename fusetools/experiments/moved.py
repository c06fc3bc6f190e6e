"""Amount of work that a workload did, from its output: bytes of dd and fio, operations."""

from __future__ import annotations

import json
import math
import re

MOST = 1 << 22  # maximum number of bytes that are read from the end of the output


# 268435456 bytes (268 MB, 256 MiB) copied, 0.0894 s, 3.0 GB/s
_DD = re.compile(r"^(\d{1,18}) bytes? (?:\(.*\) )?copied, ([0-9.,e+-]{1,20}) s,", re.MULTILINE)


# 12000 operations, 1.234 s
_OPERATIONS = re.compile(r"^(\d{1,18}) operations, ([0-9.e+-]{1,20}) s$", re.MULTILINE)


def operations(text: str) -> tuple[int, float] | None:
    """Return the number of operations and their seconds, from the last such line of the output."""
    found = _OPERATIONS.findall(text)
    seconds = _number(found[-1][1]) if found else None
    return (int(found[-1][0]), seconds) if seconds else None


def moved(text: str) -> tuple[int, float | None] | None:
    """Return (bytes, seconds or None) from a command's output; None: it prints neither.

    The bytes of several dd are added. Their seconds are None, as they may run in parallel.
    """
    if '"fio version"' in text:
        return _fio(text)
    copies = _DD.findall(text)
    if not copies:
        return None
    total = sum(int(count) for count, _ in copies)
    return total, _number(copies[0][1]) if len(copies) == 1 else None


def _fio(text: str) -> tuple[int, float | None] | None:
    """Read fio's --output-format=json: bytes of all jobs, and bytes divided by their bandwidth."""
    try:
        data = json.loads(text[text.index("{") : text.rindex("}") + 1])
        sides = [job[side] for job in data["jobs"] for side in ("read", "write")]
        total = sum(int(side["io_bytes"]) for side in sides)
        bandwidth = sum(float(side["bw_bytes"]) for side in sides)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return total, total / bandwidth if bandwidth > 0 else None


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
