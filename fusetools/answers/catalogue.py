"""A recording's events and their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from fusetools.answers.filters import Filters
from fusetools.names import CALIBRATION, CONNECT, OPERATIONS

# Callbacks and kernel functions whose name is not their operation's.
_OTHER_NAMES = {
    "forget_multi": "batch_forget",
    "dentry_revalidate": "lookup",
    "dir_open": "opendir",
}


class Probe(NamedTuple):
    """A line of the catalogue: an event of the recording and its meaning."""

    event: str
    layer: str
    function: str
    operation: str
    role: str


# What tells a request's begin, its copy to the daemon and its end: kprobes, then the kernel's own.
# `unique` is 0 in some kernels' fuse_request_send (fs/fuse/dev.c until 6.14).
_STAGES = {
    "begin": ("queue_request", "queue_request_and_unlock", "fuse_dev_queue_req"),
    "sent": ("fuse_copy_args",),
    "end": ("fuse_request_end", "request_end"),
}


_TRACEPOINTS = {
    "begin": "fuse:fuse_request_send",
    "sent": "fuse:fuse_request_sent",
    "end": "fuse:fuse_request_end",
}


_FIXED = {
    "raw_syscalls:sys_enter": ("syscall", "sys_enter"),
    "raw_syscalls:sys_exit": ("syscall", "sys_exit"),
    "ftrace:funcgraph_entry": ("kernel", "graph_entry"),
    "ftrace:funcgraph_exit": ("kernel", "graph_exit"),
}


def by_convention(events: Iterable[str], roles: Iterable[str] = ()) -> list[Probe]:
    """The catalogue of a recording that does not explain itself, from its events' names.

    ``roles`` of requests are told already.
    """
    names, roles = set(events), set(roles)
    probes = []
    fixed = dict(_FIXED)
    by_kprobe = {
        role: next((f"fuse_kernel:{f}" for f in functions if f"fuse_kernel:{f}" in names), None)
        for role, functions in _STAGES.items()
    }
    for role, tracepoint in _TRACEPOINTS.items():
        # Where the begin is a kprobe, the rest is joined to it by the request's address.
        kprobe = by_kprobe[role] if by_kprobe["begin"] and "begin" not in roles else None
        if role not in roles:
            fixed[kprobe or tracepoint] = ("request", role)
    for event in sorted(names):
        group, _, name = event.partition(":")
        function, returns, _ = name.partition("__return")
        if event in fixed:
            layer, role = fixed[event]
            probes.append(Probe(event, layer, "", "", role))
        if group in ("fuse_daemon", "fuse_kernel") and function != CALIBRATION:
            layer = group[len("fuse_") :]
            role = "return" if returns else "entry"
            probes.append(Probe(event, layer, function, operation_of(function), role))
    return probes


def operation_of(function: str) -> str:
    """The FUSE operation that a callback or a kernel function is named after, or ""."""
    function = bare(function)
    for prefix in ("", "cvmfs_", "stub_", "fuse_lib_", "fuse_"):
        name = function[len(prefix) :]
        name = _OTHER_NAMES.get(name, name)
        if function.startswith(prefix) and name in OPERATIONS:
            return name
    return ""


def bare(function: str) -> str:
    """A kernel function's name without what the compiler adds (`.isra.0`)."""
    return function.partition(".")[0]


def prune(
    catalogue: Iterable[Probe],
    patterns: Sequence[str],
    layers: Sequence[str],
    filters: Filters,
    graphed: Sequence[str] = (),
    by_operation: bool = False,
    windows: bool = False,
) -> list[Probe]:
    """The part of the catalogue that a question needs: what is not in it is not even decoded.

    ``graphed``: the functions of function_graph, which has one event for all. ``windows``: from a
    daemon's read to its reply is asked for, too.
    """
    catalogue = list(catalogue)

    def wants(layer: str) -> bool:
        return not layers or layer in layers

    functions = [
        p
        for p in catalogue
        if p.role in ("entry", "return", "reply")
        and wants(p.layer)
        # Without symbols the request alone tells a reply's operation.
        and (not patterns or p.role == "reply" or matches(patterns, p.operation, p.function))
    ]
    replies = any(p.role == "reply" for p in functions)
    # A pattern that names functions only needs no request; one that nothing here explains may be
    # the name of a system call.
    named = [p.function for p in functions]
    if wants("kernel"):
        named += graphed
    only_functions = all(
        any(fnmatchcase(name, pattern) for name in named)
        and not any(
            fnmatchcase(name, pattern) or fnmatchcase(f"FUSE_{name.upper()}", pattern)
            for name in OPERATIONS
        )
        for pattern in patterns
    )
    about_requests = not patterns or not only_functions
    if wants("kernel"):
        # One that is asked for by what is requested in it can have any name.
        functions += [
            p
            for p in catalogue
            if p.layer == "kernel"
            and p not in functions
            and (
                (about_requests and by_operation and p.role in ("entry", "return"))
                or (
                    p.role in ("graph_entry", "graph_exit")
                    and (
                        about_requests
                        or any(matches(patterns, "", function) for function in graphed)
                    )
                )
            )
        ]
    kernel = by_operation and any(p.layer == "kernel" for p in functions)
    windows = windows and about_requests
    # A caller that returns without an answer was interrupted.
    syscalls = replies or windows or (about_requests and (wants("syscall") or wants("request")))
    callers = bool(filters.pids or filters.comms or filters.mounts)
    requests = syscalls or callers or kernel or (wants("request") and about_requests)
    roles = {"begin", "end"} if requests else set()
    # Where a kprobe tells the begin, often before the request has a number, and a tracepoint the
    # end: the copy to the daemon tells both. So it does to a daemon's call, of whose caller.
    ends = {p.role: p.event.partition(":")[0] for p in catalogue if p.layer == "request"}
    if requests and ends.get("begin") == "fuse_kernel" and (callers or ends.get("end") == "fuse"):
        roles.add("sent")
    if syscalls:
        roles |= {"sys_enter", "sys_exit"}
    if replies or windows:
        roles.add("sent")  # which thread picked the request up
    if by_operation and any(p.layer == "daemon" and p.role == "return" for p in functions):
        roles |= {"end", "sys_enter"}  # when a callback replies
    if any(p.layer == "daemon" and p.role == "entry" for p in functions):
        roles.add("taken")  # calls that do not tell which request they are of
    found = functions + [p for p in catalogue if p.role in roles]
    return found + (lengths(catalogue) if windows else [])


def lengths(catalogue: Iterable[Probe]) -> list[Probe]:
    """The events once more that tell how long requests and answers are: after what they are read
    for first."""
    told = [p for p in catalogue if p.role in ("begin", "end") and p.event.startswith("fuse:")]
    return [Probe(p.event, "request", "", "", "length") for p in told]


def paired(catalogue: Iterable[Probe]) -> set[tuple[str, str]]:
    """(layer, function) of those that have a duration: both ends probed, or answered by a reply."""
    return {(p.layer, p.function) for p in catalogue if p.role in ("return", "reply")}


def matches(patterns: Iterable[str], operation: str, function: str) -> bool:
    return any(
        fnmatchcase(operation, pattern) or fnmatchcase(function, pattern) for pattern in patterns
    )


def needed(catalogue: Sequence[Probe], events: Sequence[str]) -> list[Probe]:
    """What of the catalogue, and of the recording's events beside it, tells requests' stories."""
    told = {p.event for p in catalogue if p.layer == "request"}
    probes = [p for p in catalogue if p.layer != "kernel" or p.event not in told]
    for event, role in (("sched:sched_switch", "switch"), ("sched:sched_waking", "waking")):
        if event in events and not any(p.event == event for p in catalogue):
            probes.append(Probe(event, "syscall", "", "", role))
    return probes + lengths(catalogue)


def catalogue(probes: Sequence[Probe], events: Sequence[str]) -> list[Probe]:
    """What tells requests' stories and the names of files."""
    found = needed(probes, events)
    for probe in probes:
        if probe.layer == "daemon" and probe.role == "entry":
            found.append(probe._replace(role="name"))
        elif probe.role == "reply" and probe.function in ("fuse_reply_entry", "fuse_reply_create"):
            found.append(probe._replace(role="inode"))
    if CONNECT in events:
        found.append(Probe(CONNECT, "syscall", "", "", "connect"))
    return found
