"""Capabilities of a host and its FUSE mounts for recording."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.host.facts import HostFacts
from fusetools.plan.capabilities import Advice, Layer
from fusetools.results.stuck import Told


@dataclass(frozen=True)
class Limit:
    """A limit of a mount, and the command that changes it."""

    name: str
    value: int
    change: str


@dataclass(frozen=True)
class Described:
    """A mount, and the part of its daemon that a recording would probe (one of PROBED); ``client``:
    what its CernVM-FS client says of itself."""

    path: str
    kind: str
    answered_by: str
    how: str
    advice: Advice | None = None
    probed: str = "nothing"
    stacks: str = ""
    client: tuple[Told, ...] = ()
    limits: tuple[Limit, ...] = ()

    JSON_HIDDEN = ("advice",)


PROBED = ("callbacks", "callbacks' entries", "replies", "nothing")


@dataclass(frozen=True)
class Doctor:
    """``works``: recording works here; ``stuck``: mounts that hang now; ``facts``: of the host;
    ``unknown``: mounts that may hang, which could not be examined; ``dead``: mounts whose
    connection was aborted, while their daemons live."""

    works: bool
    layers: tuple[Layer, ...]
    mounts: tuple[Described, ...]
    stuck: tuple[str, ...]
    advice: tuple[Advice, ...]
    facts: HostFacts
    unknown: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
