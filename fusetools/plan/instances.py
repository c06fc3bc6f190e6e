"""Whether ftrace may record events here, in an instance of its own."""

from __future__ import annotations

from fusetools.host.facts import HostFacts

THREADS = "task:task_newtask"  # which process a new thread is of: ftrace tells its number alone


def by_perf(facts: HostFacts) -> str:
    """Why perf records all events here; "" where ftrace records those without a stack, in an
    instance of its own, which is cheaper."""
    if not facts.instances:
        return "this kernel's ftrace has no instances"
    if "mono" not in facts.clocks:
        return "ftrace has no clock here that perf has, too"
    return "threads have other numbers here than ftrace tells" if facts.pid_namespace else ""
