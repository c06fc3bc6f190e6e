"""ftrace's own instance: whether it can record events here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from fusetools.host.facts import HostFacts
from fusetools.names import LOCKS, READS
from fusetools.plan.events import Event
from fusetools.plan.filters import Filter, all_of, negated

THREADS = "task:task_newtask"  # the process of a new thread: ftrace shows only its number

# Recorded by both where stacks are taken: only the stacks of perf's samples are used
# (native/core/src/write/waits.rs).
OF_BOTH = ("sched:sched_switch", "raw_syscalls:sys_enter")
# perf takes a stack with these, right before ftrace records the same switch or system call.
PAIRED = (*OF_BOTH, *READS, LOCKS)

# perf switches one event by its name since Linux 5.12 (tools/perf/util/evlist.c,
# evlist__ctlfd_enable); before, only all of its events.
BY_NAME = (5, 12)


def by_perf(facts: HostFacts) -> str:
    """Return why perf records all events here; "" where ftrace records the events without stacks in
    its own instance, which is cheaper."""
    if not facts.instances:
        return "this kernel's ftrace has no instances"
    if "mono" not in facts.clocks:
        return "ftrace has no clock here that perf has, too"
    return "threads have other numbers here than ftrace tells" if facts.pid_namespace else ""


def by_name(facts: HostFacts) -> bool:
    """Return whether perf can stop taking stacks temporarily."""
    version = re.match(r"(\d+)\.(\d+)", facts.perf.version) if facts.perf else None
    return version is not None and (int(version[1]), int(version[2])) >= BY_NAME


def all_by_perf(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the same events for the case that no instance can be made: perf does not record twice
    the events whose stacks it takes."""
    events = tuple(events)
    filters: dict[str, list[Filter]] = {}
    for event in events:
        if not event.ftrace:
            filters.setdefault(event.name, []).append(event.condition)
    merged = []
    for event in events:
        others = filters.get(event.name, []) if event.ftrace else []
        if all(others):
            rest = all_of(event.filter, *(negated(of) for of in others))
            merged.append(replace(event, filter=rest, ftrace=False))
    return tuple(merged)
