"""The kernel's caches, before a run that is to begin without them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from fusetools.errors import Error


def drop() -> None:
    """Empties the kernel's caches of pages, names and inodes. Error: that may not be done."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError as error:
        raise Error(
            "cannot drop the kernel's caches",
            error.strerror or str(error),
            "sudo fusetools sweep …\nfusetools sweep --caches keep …",
        ) from error


def load(command: Sequence[str]) -> None:
    """Programs are to come out of the cache nevertheless: not what is measured."""
    words = [part for word in command for part in word.split()]
    for name in {"sh", *(word for word in words if "/" not in word)}:
        path = shutil.which(name)
        if path:
            Path(path).read_bytes()
    path = shutil.which(command[0])
    if path:
        Path(path).read_bytes()
