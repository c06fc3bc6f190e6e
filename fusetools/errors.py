"""The one error that a user is meant to see."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

RECORD = "fusetools record -- WORKLOAD"  # what mends the lack of a recording


def merging(parts: Sequence[str]) -> str:
    """What mends a recording that is in parts."""
    return shlex.join(["fusetools", "merge", *parts, "-o", "merged.data"])


class Error(Exception):
    """What failed, why, and the command that mends it; each one line, the last two may be empty.

    Raised anywhere, printed in one place (fusetools.cli), never as a traceback.
    """

    def __init__(self, what: str, why: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.mend = mend

    def __str__(self) -> str:
        return "\n".join(
            [self.what]
            + ([f"  why: {self.why}"] if self.why else [])
            + ([f"  fix: {self.mend}"] if self.mend else [])
        )
