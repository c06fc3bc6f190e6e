"""The cgroup of a process and how it, or an ancestor, restricts the process.

Sources: cgroups(7), Documentation/admin-guide/cgroup-v1/ and cgroup-v2.rst.
"""

from __future__ import annotations

import os
import re
from typing import TypedDict

from fusetools.host.cgroup import name, ours
from fusetools.host.mounts import reachable
from fusetools.stuck.children import text


class Cgroup(TypedDict):
    cgroup: str
    frozen: tuple[str, ...]
    memory: str
    quota: tuple[str, float] | None


def hierarchies() -> dict[str, str]:
    """Return the mount points of cgroups by controller, "" for version 2."""
    mounts = text("/proc/self/mountinfo", 16 << 20)
    places: dict[str, str] = {}
    for path, _ in reachable(mounts, "cgroup2"):
        places.setdefault("", path)
    for path, options in reachable(mounts, "cgroup"):
        for controller in ("freezer", "memory", "cpu"):
            if controller in options.split(","):
                places.setdefault(controller, path)
    return places


def about(listed: str, mounted: dict[str, str]) -> Cgroup:
    """Return the cgroup, and which cgroups from there upwards are frozen or have full memory.

    The source is a /proc/PID/cgroup.
    """
    row: Cgroup = {"cgroup": name(listed), "frozen": (), "memory": "", "quota": None}
    for line in listed.split("\n"):
        _, controllers, place = [*line.split(":", 2), "", ""][:3]
        if not ours(place):
            continue
        known = [controller for controller in controllers.split(",") if controller in mounted]
        while place != "/":
            for controller in known:
                base = mounted[controller] + place
                if _frozen(controller, base):
                    row["frozen"] = (base, *row["frozen"])
                if _full(controller, base):
                    row["memory"] = base
                quota = _quota(controller, base)
                if quota and (not row["quota"] or quota < row["quota"][1]):
                    row["quota"] = (base, quota)
            place = os.path.dirname(place)
    return row


def _frozen(controller: str, base: str) -> bool:
    if controller == "freezer":
        # Below a frozen cgroup each state is FROZEN, and only the frozen one can be thawed.
        own = text(f"{base}/freezer.self_freezing").strip()
        return own == "1" or (not own and text(f"{base}/freezer.state").strip()[:5] == "FREEZ")
    return not controller and text(f"{base}/cgroup.freeze").strip() == "1"


def _full(controller: str, base: str) -> bool:
    names = {"": ("memory.max", "memory.current")}
    names["memory"] = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    if controller not in names:
        return False
    limit, used = (text(f"{base}/{name}").strip() for name in names[controller])
    return limit.isdecimal() and used.isdecimal() and int(used) >= 0.98 * int(limit)


def _quota(controller: str, base: str) -> float | None:
    """Return the number of CPUs that a cgroup may use at most."""
    limits = ""
    if not controller:
        limits = text(f"{base}/cpu.max")
    elif controller == "cpu":
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        limits = " ".join(text(f"{base}/{name}").strip() for name in names)
    match = re.fullmatch(r"([1-9][0-9]{0,12}) ([1-9][0-9]{0,12})", limits.strip())
    return int(match[1]) / int(match[2]) if match else None
