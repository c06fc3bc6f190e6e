"""The cgroup of a process, and what it, or one above it, keeps the process from.

Sources: cgroups(7), Documentation/admin-guide/cgroup-v1/ and cgroup-v2.rst.
"""

from __future__ import annotations

import os
import re
from typing import TypedDict

from fusetools.now.children import text


class Cgroup(TypedDict):
    cgroup: str
    frozen: str
    memory: str
    quota: tuple[str, float] | None


def hierarchies() -> dict[str, str]:
    """The mount points of cgroups by controller, "" for version 2."""
    places: dict[str, str] = {}
    for line in text("/proc/self/mounts", 16 << 20).split("\n"):
        fields = line.split()
        if len(fields) > 3 and fields[2] == "cgroup2":
            places.setdefault("", fields[1])
        elif len(fields) > 3 and fields[2] == "cgroup":
            for name in ("freezer", "memory", "cpu"):
                if name in fields[3].split(","):
                    places.setdefault(name, fields[1])
    return places


def about(listed: str, mounted: dict[str, str]) -> Cgroup:
    """From a /proc/PID/cgroup: the cgroup, and which one from it upwards is frozen, or has full
    memory."""
    row: Cgroup = {"cgroup": "", "frozen": "", "memory": "", "quota": None}
    for line in listed.split("\n"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if ".." in path.split("/"):  # outside our cgroup namespace
            continue
        names = controllers.split(",") if controllers else [""]
        for name in names:
            if name not in mounted or not path.startswith("/"):
                continue
            place = path
            while place != "/":
                base = mounted[name] + place
                if _frozen(name, base):
                    row["frozen"] = base
                if _full(name, base):
                    row["memory"] = base
                quota = _quota(name, base)
                if quota and (not row["quota"] or quota < row["quota"][1]):
                    row["quota"] = (base, quota)
                place = os.path.dirname(place)
        if not controllers or not row["cgroup"]:
            row["cgroup"] = path
    return row


def _frozen(controller: str, base: str) -> bool:
    if controller == "freezer":
        return text(f"{base}/freezer.state").strip() in ("FROZEN", "FREEZING")
    return not controller and text(f"{base}/cgroup.freeze").strip() == "1"


def _full(controller: str, base: str) -> bool:
    names = {"": ("memory.max", "memory.current")}
    names["memory"] = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    if controller not in names:
        return False
    limit, used = (text(f"{base}/{name}").strip() for name in names[controller])
    return limit.isdecimal() and used.isdecimal() and int(used) >= 0.98 * int(limit)


def _quota(controller: str, base: str) -> float | None:
    """The CPUs that a cgroup may use at most."""
    limits = ""
    if not controller:
        limits = text(f"{base}/cpu.max")
    elif controller == "cpu":
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        limits = " ".join(text(f"{base}/{name}").strip() for name in names)
    match = re.fullmatch(r"([1-9][0-9]{0,12}) ([1-9][0-9]{0,12})", limits.strip())
    return int(match[1]) / int(match[2]) if match else None
