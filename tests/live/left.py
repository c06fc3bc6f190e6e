"""Everything that a recording must not leave behind."""

from __future__ import annotations

import fcntl
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
RUN = Path("/run/fusetools")


def own_probes() -> list[str]:
    lines = (TRACEFS / "uprobe_events").read_text().splitlines()
    return [line for line in lines if ":fuse_daemon/" in line]


def own_cgroups() -> list[Path]:
    return list(Path("/sys/fs/cgroup").rglob("fusetools-*"))


def nothing_left() -> None:
    with (RUN / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert own_probes() == []
        assert own_cgroups() == []
        left = [path for path in RUN.rglob("*") if path.is_file() or path.parent != RUN]
        assert {path.name for path in left} == {"lock"}, left
