"""CPU quotas of a process's cgroups, and what sets its share of a CPU: what its 'waiting for CPU'
may mean.

A quota may stand in any cgroup above a process. In both versions cpu.stat has nr_throttled, and
throttled_usec in version 2, throttled_time (ns) in version 1 (kernel's Documentation/admin-guide/
cgroup-v2.rst and scheduler/sched-bwc.rst).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fusetools.host.files import Files
from fusetools.session import Throttled

_DEEPEST = 64


class Quota(NamedTuple):
    """Since the cgroup was made: times, and ns in all."""

    times: int
    ns: int


def quotas(files: Files, pid: int) -> dict[str, Quota]:
    """Return the quota of each cgroup around the process that can have one, by its directory."""
    quotas: dict[str, Quota] = {}
    for place in _places(files, pid):
        if (quota := read(files, place)) is not None:
            quotas[place] = quota
    return quotas


def _places(files: Files, pid: int) -> list[str]:
    memberships = [
        line.split(":", 2)
        for line in (files.read(f"/proc/{pid}/cgroup", quiet=True) or "").splitlines()
        if line.count(":") >= 2
    ]
    mounts = [
        line.split()
        for line in (files.read("/proc/self/mounts", quiet=True) or "").splitlines()
        if len(line.split()) > 3
    ]
    places = []
    for _, mount, kind, options, *_ in mounts:
        for number, controllers, own in memberships:
            first = kind == "cgroup" and "cpu" in options.split(",")
            second = kind == "cgroup2" and number == "0" and not controllers
            if not (second or (first and "cpu" in controllers.split(","))):
                continue
            parts = [part for part in own.split("/") if part][:_DEEPEST]
            if ".." in parts:  # outside of what this namespace shows
                continue
            places += ["/".join([mount, *parts[:depth]]) for depth in range(len(parts), 0, -1)]
    return places


def weighed_by(files: Files, pid: int) -> str:
    """Return what sets a process's share of a busy CPU beside its nice value: "cgroup" (cpu.weight,
    version 1: cpu.shares), "autogroup" (sched(7)), or "nice" if nothing does. "": unknown."""
    weights = ("cpu.weight", "cpu.shares")
    places = _places(files, pid)
    if any(files.read(f"{place}/{name}", quiet=True) for place in places for name in weights):
        return "cgroup"
    if files.read(f"/proc/{pid}/stat", quiet=True) is None:
        return ""
    on = (files.read("/proc/sys/kernel/sched_autogroup_enabled", quiet=True) or "").strip() == "1"
    group = files.read(f"/proc/{pid}/autogroup", quiet=True)
    return "autogroup" if on and group else "nice"


def read(files: Files, place: str) -> Quota | None:
    """None where there is no such cgroup, or no quota can be there."""
    fields = {}
    for line in (files.read(f"{place}/cpu.stat", quiet=True) or "").splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            fields[name] = int(value)
    if "nr_throttled" not in fields:
        return None
    ns = fields.get("throttled_usec", 0) * 1000 or fields.get("throttled_time", 0)
    return Quota(fields["nr_throttled"], ns)


def renew(files: Files, quotas: dict[str, Quota]) -> None:
    """Bring the figures of these cgroups up to date: what was before is of no interest."""
    for place in quotas:
        quotas[place] = read(files, place) or quotas[place]


def since(files: Files, whose: str, before: Mapping[str, Quota]) -> list[Throttled]:
    """Return the cgroups that have been throttled since then."""
    rows = []
    for place, (times, ns) in before.items():
        now = read(files, place)
        if now is not None and now.times > times:
            rows.append(Throttled(place, whose, now.times - times, max(now.ns - ns, 0)))
    return rows
