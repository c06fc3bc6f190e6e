"""The exception for every failure that a user sees."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

RECORD = "fusetools record -- WORKLOAD"  # the fix if there is no recording


def merging(parts: Sequence[str]) -> str:
    """Return the command that merges the parts of a recording."""
    return shlex.join(["fusetools", "merge", *parts, "-o", "merged.data"])


class Error(Exception):
    """A failure, its reason and the command that fixes it, one line each.

    The reason and the command may be empty. fusetools.cli alone prints it, never as a traceback,
    and exits with ``status``. ``instead``: a word of the command line and the right one: the
    command line with that is the fix.
    """

    status = 1

    def __init__(
        self, what: str, why: str = "", fix: str = "", instead: tuple[str, str] | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.instead = instead

    def __str__(self) -> str:
        return "\n".join(
            [self.what]
            + ([f"  why: {self.why}"] if self.why else [])
            + ([f"  fix: {self.fix}"] if self.fix else [])
        )
