"""A cgroup for the workload, by which perf tells it and its children from others."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from fusetools.host.cgroup import Hierarchy


class Cgroup:
    """Below the cgroup that we are in, with no controller on: limits stay as they are."""

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        self.path = path(hierarchy, name)
        self.name = f"{hierarchy.own.rstrip('/')}/{name}".lstrip("/")  # as perf -G takes it
        self.path.mkdir()

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))


def remove(path: Path) -> bool:
    """Remove a cgroup. Processes that are still in it go back to its parent."""
    for _ in range(100):
        try:
            path.rmdir()
            return True
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:
                return False
        with contextlib.suppress(OSError):
            for pid in (path / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (path.parent / "cgroup.procs").write_text(pid)
        time.sleep(0.01)
    return False


def name() -> str:
    return f"fusetools-{os.getpid()}"


def path(hierarchy: Hierarchy, name: str) -> Path:
    """Return the directory of a cgroup of ours."""
    return Path(hierarchy.mount + hierarchy.own) / name
