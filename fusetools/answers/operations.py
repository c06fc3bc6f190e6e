"""FUSE operations by shell patterns."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fusetools.errors import Error
from fusetools.names import OPERATIONS


def operations(patterns: Sequence[str]) -> list[str]:
    """The FUSE operations that the shell patterns match. Error: one matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in OPERATIONS):
            raise Error(
                f"no FUSE operation matches {pattern}",
                f"operations: {', '.join(sorted(OPERATIONS))}",
                "fusetools count --layer request",
            )
    return [name for name in sorted(OPERATIONS) if any(fnmatchcase(name, p) for p in patterns)]
