"""FUSE operations by shell patterns."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fusetools.errors import Error
from fusetools.names import OPERATIONS


def operations(patterns: Sequence[str]) -> list[str]:
    """The FUSE operations that a shell pattern matches; all if there are no patterns."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in OPERATIONS):
            raise Error(
                f"there is no operation {pattern}",
                f"there are {', '.join(sorted(OPERATIONS))}",
                "fusetools count --layer request",
            )
    return [name for name in sorted(OPERATIONS) if any(fnmatchcase(name, p) for p in patterns)]
