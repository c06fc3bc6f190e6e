"""The one error that a user is meant to see."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

RECORD = "fusetools record -- WORKLOAD"  # fixes the lack of a recording


def merging(parts: Sequence[str]) -> str:
    """The command that merges the parts of a recording."""
    return shlex.join(["fusetools", "merge", *parts, "-o", "merged.data"])


class Error(Exception):
    """What failed, why, and the command that fixes it; each one line, the last two may be empty.

    Raised anywhere, printed in one place (fusetools.cli), never as a traceback.
    """

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return "\n".join(
            [self.what]
            + ([f"  why: {self.why}"] if self.why else [])
            + ([f"  fix: {self.fix}"] if self.fix else [])
        )
