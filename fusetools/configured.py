"""Files of configs/, which is installed as fusetools.configs, and TOML on every Python."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["files", "tomllib"]


def files(folder: str) -> list[Path]:
    """Return the TOML files of a folder of configs/, by name."""
    package = importlib.import_module(f"fusetools.configs.{folder}")
    return sorted(path for place in package.__path__ for path in Path(place).glob("*.toml"))
