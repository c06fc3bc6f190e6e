"""Changes that findings advise, in the words of the daemon's own options, from configs/fixes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fusetools.configured import files, tomllib
from fusetools.session import TracedMount

KINDS = ("timeouts", "negative", "attributes", "pages", "readdirplus")
_LIBFUSE, _ANY = "libfuse", "any"
_HIGHLEVEL = "libfuse_highlevel"  # the probe set of libfuse's high-level API


@cache
def daemons() -> Mapping[str, Mapping[str, str]]:
    """Return the changes by program and kind, each with those of programs in general."""
    found: dict[str, Mapping[str, str]] = {}
    for file in files("fixes"):
        found.update(tomllib.loads(file.read_text("utf-8")))
    return found


def advice(kind: str, mount: TracedMount | None) -> str:
    """Return the change of one of KINDS on this mount."""
    names = [_ANY]
    if mount is not None:
        # Only the high-level API takes options about caches.
        generic = [_LIBFUSE] if mount.parses and mount.fs == _HIGHLEVEL else []
        names = [mount.program, *generic, _ANY]
    known = daemons()
    return next(known[name][kind] for name in names if kind in known.get(name, {}))
