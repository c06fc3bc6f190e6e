"""The catalogue: a recording's events and their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from fusetools.answers.filters import Filters
from fusetools.names import CALIBRATION, CONNECT, OPERATIONS, RINGS, SIGNAL

# Operations of callbacks and kernel functions that are not named after their operation.
_OTHER_NAMES = {
    "forget_multi": "batch_forget",
    "dentry_revalidate": "lookup",
    "dir_open": "opendir",
}


class Probe(NamedTuple):
    """A row of the catalogue: an event of the recording and its meaning."""

    event: str
    layer: str
    function: str
    operation: str
    role: str


# Events at a request's begin, its copy to the daemon and its end: kprobes, then tracepoints.
# In some kernels, fuse_request_send has `unique` 0 (fs/fuse/dev.c until 6.14).
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
    **{event: ("syscall", role) for role, event in RINGS.items()},
}


def by_convention(events: Iterable[str], roles: Iterable[str] = ()) -> list[Probe]:
    """Infer the catalogue of events from their names, if the recording does not describe them.

    ``roles``: those that the recording does describe.
    """
    names, roles = set(events), set(roles)
    probes = []
    fixed = dict(_FIXED)
    by_kprobe = {
        role: next((f"fuse_kernel:{f}" for f in functions if f"fuse_kernel:{f}" in names), None)
        for role, functions in _STAGES.items()
    }
    for role, tracepoint in _TRACEPOINTS.items():
        # With a kprobe at the begin, the others are joined to it by the request's address.
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
    """Return the FUSE operation after which a callback or a kernel function is named, or ""."""
    function = bare(function)
    for prefix in ("", "cvmfs_", "stub_", "fuse_lib_", "fuse_"):
        name = function[len(prefix) :]
        name = _OTHER_NAMES.get(name, name)
        if function.startswith(prefix) and name in OPERATIONS:
            return name
    return ""


def bare(function: str) -> str:
    """Remove the compiler's suffix (`.isra.0`) from a kernel function's name."""
    return function.partition(".")[0]


def prune(
    catalogue: Iterable[Probe],
    patterns: Sequence[str],
    layers: Sequence[str],
    filters: Filters,
    graphed: Sequence[str] = (),
    by_operation: bool = False,
    windows: bool = False,
    parts: bool = False,
) -> list[Probe]:
    """Return the rows of the catalogue that a question needs. Other events are not decoded.

    ``graphed``: the functions of function_graph, which has one event for all. ``windows``: also the
    time from a daemon's read to its reply. ``parts``: also callbacks' time before and after their
    reply.
    """
    catalogue = list(catalogue)

    def wants(layer: str) -> bool:
        return not layers or layer in layers

    functions = [
        p
        for p in catalogue
        if p.role in ("entry", "return", "reply")
        and wants(p.layer)
        # Without symbols, a reply's operation is that of its request.
        and (not patterns or p.role == "reply" or matches(patterns, p.operation, p.function))
    ]
    replies = any(p.role == "reply" for p in functions)
    # A pattern that matches only functions needs no requests. A pattern that matches nothing here
    # may be a system call.
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
        # A function that is selected by its requests' operation can have any name.
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
    # At a kprobe at the begin, a request often has no number yet, and a tracepoint at the end has
    # only the number. The copy to the daemon joins the two. It also finds a daemon call's caller.
    ends = {p.role: p.event.partition(":")[0] for p in catalogue if p.layer == "request"}
    if requests and ends.get("begin") == "fuse_kernel" and (callers or ends.get("end") == "fuse"):
        roles.add("sent")
    if syscalls:
        roles |= {"sys_enter", "sys_exit"}
    if replies or windows:
        roles |= {"sent", *RINGS}  # show the thread that read the request
    if parts and any(p.layer == "daemon" and p.role == "return" for p in functions):
        roles |= {"end", "sys_enter"}  # show when a callback replies
    if any(p.layer == "daemon" and p.role == "entry" for p in functions):
        roles.add("taken")  # for calls without their request's number
    probes = functions + [p for p in catalogue if p.role in roles]
    return probes + (lengths(catalogue) if windows else [])


def lengths(catalogue: Iterable[Probe]) -> list[Probe]:
    """Return further rows of the events that hold the lengths of requests and replies.

    They come after the rows of these events' main roles."""
    probes = [p for p in catalogue if p.role in ("begin", "end") and p.event.startswith("fuse:")]
    return [Probe(p.event, "request", "", "", "length") for p in probes]


def paired(catalogue: Iterable[Probe]) -> set[tuple[str, str]]:
    """Return (layer, function) of all functions with a duration: a return or a reply is probed."""
    return {(p.layer, p.function) for p in catalogue if p.role in ("return", "reply")}


def matches(patterns: Iterable[str], operation: str, function: str) -> bool:
    """Return whether a shell pattern matches the operation or the function."""
    return any(
        fnmatchcase(operation, pattern) or fnmatchcase(function, pattern) for pattern in patterns
    )


def needed(catalogue: Sequence[Probe], events: Sequence[str]) -> list[Probe]:
    """Return the rows for requests' stories, from the catalogue and the recording's events."""
    request_events = {p.event for p in catalogue if p.layer == "request"}
    probes = [p for p in catalogue if p.layer != "kernel" or p.event not in request_events]
    known = (("sched:sched_switch", "switch"), ("sched:sched_waking", "waking"), (SIGNAL, "signal"))
    for event, role in known:
        if event in events and not any(p.event == event for p in catalogue):
            probes.append(Probe(event, "syscall", "", "", role))
    return probes + lengths(catalogue)


def with_stacks(catalogue: Sequence[Probe], stacks: Sequence[str]) -> list[Probe]:
    """Add the stacks of waits, which show what callers wait for outside of requests.

    ``stacks``: the recording's events with stacks."""
    switches = {p.event for p in catalogue if p.role == "switch"}
    # They come after the other rows of the same events.
    rows = [Probe(event, "syscall", "", "", "stack") for event in stacks if event in switches]
    return [*catalogue, *rows]


def catalogue(probes: Sequence[Probe], events: Sequence[str]) -> list[Probe]:
    """Return the rows for requests' stories and for file names."""
    rows = needed(probes, events)
    for probe in probes:
        if probe.layer == "daemon" and probe.role == "entry":
            rows.append(probe._replace(role="name"))
        elif probe.role == "reply" and probe.function in ("fuse_reply_entry", "fuse_reply_create"):
            rows.append(probe._replace(role="inode"))
        if probe.role == "reply" and probe.function in ("fuse_reply_open", "fuse_reply_create"):
            rows.append(probe._replace(role="handle"))
    if CONNECT in events:
        rows.append(Probe(CONNECT, "syscall", "", "", "connect"))
    return rows
