"""Triggers of a flight recorder: parsed from the user's text, checked once at the edge."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import Union

from fusetools.core import names_operation
from fusetools.figures import NS

_UNITS = {**NS, "m": 60 * NS["s"], "min": 60 * NS["s"]}
_TIME = r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|ms|us|m|min)"
_WAITING = re.compile(rf"waiting\s*>\s*(\d{{1,9}})(?:\s+for\s+{_TIME})?")
_ERRORS = re.compile(r"errors\s*\(([^()]*)\)")
_SLOW = re.compile(rf"([\w*?\[\]!-]+)\s*>\s*{_TIME}")
FORMS = "'read > 1s', 'waiting > 20 for 5s' or 'errors(EIO)'"


@dataclass(frozen=True)
class Slow:
    """A request of the operations that a shell pattern selects takes longer than ``least`` ns."""

    text: str
    pattern: str
    least: int


@dataclass(frozen=True)
class Waiting:
    """More than ``count`` requests wait on one mount, for ``ns`` without interruption."""

    text: str
    count: int
    ns: int


@dataclass(frozen=True)
class Failed:
    """A request ends with one of ``errors`` (errno)."""

    text: str
    errors: tuple[int, ...]


Condition = Union[Slow, Waiting, Failed]


def condition(text: str) -> Condition:
    """Parse ``text``. ValueError: why it is not a condition."""
    plain = text.strip()
    if match := _WAITING.fullmatch(plain):
        return Waiting(plain, int(match[1]), _ns(match[2], match[3]) if match[2] else 0)
    if match := _ERRORS.fullmatch(plain):
        names = [name.strip() for name in match[1].split(",")]
        numbers = {name: number for number, name in errno.errorcode.items()}
        for name in names:
            if name not in numbers:
                raise ValueError(f"{name or 'nothing'} is the name of no error (EIO, ENOENT, …)")
        return Failed(plain, tuple(numbers[name] for name in names))
    if match := _SLOW.fullmatch(plain):
        if not names_operation(match[1]):
            raise ValueError(f"no FUSE operation matches {match[1]}")
        return Slow(plain, match[1], _ns(match[2], match[3]))
    raise ValueError(f"it is not of the form {FORMS}")


def _ns(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
