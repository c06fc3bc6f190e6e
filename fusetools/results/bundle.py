"""Result of `fusetools export --format cvmfsbundle` and `--format shrinkwrap`."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.results.facts import Facts


@dataclass(frozen=True)
class Bundle:
    """The files that were opened or read on a mount.

    ``files``: paths from the mount point, with a slash before each, by their first request.
    ``waited_ns``: time that callers waited for their open and read requests, added up.
    ``unnamed``: number of further files, whose path is unknown.
    """

    mount: str
    files: tuple[str, ...]
    waited_ns: int
    unnamed: int
    facts: Facts
