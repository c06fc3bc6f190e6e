"""The kernel's caches, before a run that is to begin without them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.files import bounded

PATIENCE = 20.0


def drop() -> None:
    """Empty the kernel's caches of pages, names and inodes. Raise Error if that is not
    permitted."""
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
    """Read the workload's programs into the page cache: loading them is not what is measured."""
    bounded(partial(_load, command), PATIENCE)  # they may lie on a file system that hangs


def _load(command: Sequence[str]) -> str:
    words = [part for word in command for part in word.split()]
    for name in ("sh", command[0], *(word for word in words if "/" not in word)):
        path = shutil.which(name)
        if path and os.path.isfile(path):
            with Path(path).open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
    return ""
