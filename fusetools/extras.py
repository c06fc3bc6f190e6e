"""Packages that only some commands need."""

from __future__ import annotations

from importlib.util import find_spec

from fusetools.errors import Error

COMPARE = "pip install 'fusetools-trace[compare]'"
FLEET = "pip install 'fusetools-trace[fleet]'"
SERVE = "pip install 'fusetools-trace[serve]'"
SPARK = "pip install 'fusetools-trace[spark]'"


def need(package: str, why: str, fix: str) -> None:
    """Raise Error unless a package is installed.

    ``why``: what needs it; ``fix``: the command that installs it."""
    if find_spec(package) is None:
        raise Error(f"{package} is not installed", why, fix)
