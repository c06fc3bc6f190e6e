"""Selection of FUSE operations by shell patterns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fusetools.core import OPERATIONS, matching
from fusetools.errors import Error
from fusetools.patterns import suggestion


def operations(patterns: Sequence[str], recording: Path | None = None) -> list[str]:
    """Return the FUSE operations that match a shell pattern, sorted.

    Error: a pattern matches none. Its fix lists the operations of the ``recording``."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in OPERATIONS):
            look = ["fusetools", "count", "--layer", "request", "-i", str(recording)]
            raise Error(
                f"no FUSE operation matches {pattern}",
                suggestion(pattern, OPERATIONS),
                shlex.join(look) if recording else "",
            )
    return [name for name in sorted(OPERATIONS) if any(fnmatchcase(name, p) for p in patterns)]


def matched(regex: str, recording: Path) -> list[str]:
    """Return the FUSE operations that match a regular expression, as operations() does."""
    names = sorted(OPERATIONS)
    found = [name for name, matches in zip(names, matching(regex, names)) if matches]
    return found or operations([regex], recording)
