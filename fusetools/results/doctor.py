"""What a recording would find on a host, mount by mount."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.plan.capabilities import Advice


@dataclass(frozen=True)
class Described:
    """A mount and what a recording would probe in its daemon: ``probed`` is one of PROBED."""

    path: str
    kind: str
    answered_by: str
    how: str
    advice: Advice | None = None
    probed: str = "nothing"
    stacks: str = ""


PROBED = ("callbacks", "callbacks' entries", "replies", "nothing")
