"""Everything that a recording could leave behind on a host, compared before and after it."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
RUN = Path("/run/fusetools")
# Settings of the kernel that function_graph and the recorder change.
SETTINGS = (
    TRACEFS / "current_tracer",
    TRACEFS / "tracing_on",
    TRACEFS / "trace_clock",
    TRACEFS / "set_graph_function",
    TRACEFS / "set_graph_notrace",
    TRACEFS / "set_ftrace_filter",
    TRACEFS / "set_ftrace_notrace",
    TRACEFS / "set_ftrace_pid",
    TRACEFS / "set_event",
    TRACEFS / "set_event_pid",
    TRACEFS / "max_graph_depth",
    Path("/sys/kernel/rcu_expedited"),
)


def state() -> dict[str, str]:
    """Return leftovers by kind: probes, instances of tracefs, ftrace's settings, mounts, cgroups,
    notes."""
    found = {str(path): _text(path) for path in SETTINGS}
    for name in ("uprobe_events", "kprobe_events", "dynamic_events"):
        lines = _text(TRACEFS / name).splitlines()
        found[name] = "\n".join(sorted(line for line in lines if ":fuse_" in line))
    found["instances"] = " ".join(sorted(_names(TRACEFS / "instances")))
    # Tests that record nothing mount file systems and groups meanwhile.
    lines = _text(Path("/proc/self/mountinfo")).splitlines()
    kept = (line for line in lines if not re.search(" - (fuse|cgroup)", line))
    found["mounts"] = "\n".join(sorted(kept))
    groups = Path("/sys/fs/cgroup").rglob("fusetools-*")
    found["cgroups"] = " ".join(sorted(map(str, groups)))
    notes = [path for path in RUN.glob("*/*") if path.name != "lock"]
    found["notes"] = " ".join(sorted(map(str, notes)))
    return found


def processes(words: list[str]) -> list[int]:
    """Return processes with one of these words in their command line, except this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = path.read_bytes().decode("utf-8", "replace")
            if any(word in text for word in words) and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def hidden(folder: Path) -> list[str]:
    """Return files that are readable for others than their user."""
    return sorted(name for name in _names(folder) if name.startswith("."))


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="surrogateescape")
    return ""
