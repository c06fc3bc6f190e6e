"""Selection of FUSE operations by shell patterns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fusetools.core import LATER, OPERATIONS, matching, names_operation
from fusetools.patterns import expression, matches, unknown


def expressions(patterns: Sequence[str], recording: Path | None = None) -> list[str]:
    """Return the core's regular expressions of shell patterns of operations.

    Error: a pattern matches none. Its fix lists the operations of the ``recording``."""
    for pattern in patterns:
        if not names_operation(pattern):
            look = ["fusetools", "count", "--layer", "request", "-i", str(recording)]
            raise unknown(
                f"no FUSE operation matches {pattern}",
                pattern,
                OPERATIONS,
                shlex.join(look) if recording else "",
            )
    return [expression(pattern) for pattern in patterns]


def matched(regex: str, recording: Path) -> list[str]:
    """Return shell patterns of the FUSE operations that match a regular expression.

    Error: it matches none, as in expressions()."""
    names, others = sorted(OPERATIONS), list(LATER)
    found = [name for name, matches in zip(names, matching(regex, names)) if matches]
    later = [name for name, matches in zip(others, matching(regex, others)) if matches]
    found += ["opcode_*"] if later == others else later
    if not found:
        expressions([regex], recording)
    return found or [regex]


def selected(operation: str | None, patterns: Sequence[str]) -> bool:
    """Return whether shell patterns select an operation; without patterns, all are selected."""
    return not patterns or (operation is not None and matches(patterns, operation, operation))
