"""Cgroups: that of a process, and the hierarchy in which perf can select processes."""

from __future__ import annotations

from dataclasses import dataclass

from fusetools.host.files import Files


@dataclass(frozen=True)
class Hierarchy:
    """The mount point of a hierarchy, and this process's cgroup in it ("/…")."""

    mount: str
    own: str


def perf_hierarchy(files: Files) -> Hierarchy | None:
    """Return the cgroup hierarchy that perf uses: version 1's with perf_event, else version 2's."""
    memberships = [
        line.split(":", 2)
        for line in (files.read("/proc/self/cgroup", quiet=True) or "").split("\n")
        if line.count(":") >= 2
    ]
    mounts = [
        line.split()
        for line in (files.read("/proc/self/mounts", quiet=True) or "").split("\n")
        if len(line.split()) > 3
    ]
    for fields in mounts:
        if fields[2] == "cgroup" and "perf_event" in fields[3].split(","):
            for _, controllers, own in memberships:
                if "perf_event" in controllers.split(","):
                    return Hierarchy(fields[1], own)
    for fields in mounts:
        if fields[2] == "cgroup2":
            for number, controllers, own in memberships:
                if number == "0" and not controllers:
                    return Hierarchy(fields[1], own)
    return None


def name(listed: str) -> str:
    """Return the cgroup in a /proc/PID/cgroup: version 2's unless it is the root, else one of
    version 1's.

    Return "" if no cgroup is listed.
    """
    lines = (line.split(":", 2) for line in listed.split("\n") if line.count(":") > 1)
    paths = sorted((controllers != "", path) for _, controllers, path in lines if ours(path))
    named = [path for _, path in paths if path != "/"]
    return named[0] if named else "/" if paths else ""


def ours(path: str) -> bool:
    """Return whether the cgroup is inside our cgroup namespace."""
    return path.startswith("/") and ".." not in path.split("/")
