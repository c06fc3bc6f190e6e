"""Stacks of a recording for flame graphs: what is asked of the native core, and kinds of frames."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusetools.errors import Error
from fusetools.host.files import answers
from fusetools.model import Facts, GraphNode, LeftOut, Named, Stacks
from fusetools.stories import needed

if TYPE_CHECKING:
    from fusetools.recording import Probe

GRAPHS = ("on-cpu", "off-cpu", "off-wake", "requests", "graph")
STATES = ("blocked", "runnable", "preempted", "blocked_or_runnable")
# Whole stacks of whatever has unwind tables.
COPY = "fusetools record --call-graph dwarf -- WORKLOAD"

# Where a daemon reads requests, and waits for one.
IDLE = ("fuse_dev_read", "fuse_dev_splice_read", "fuse_dev_do_read")

# Kinds of frames, in the order of a picture's legend.
KINDS = ("system call", "VFS", "FUSE", "scheduler", "kernel", "daemon", "library", "program")

# Kernel functions by their names, the first that fits; after the directories of Linux.
_KERNEL = (
    (
        "system call",
        r"(entry_SYSCALL|do_syscall|x64_sys_call|invoke_syscall|el0_|(__)?(x64|ia32|arm64|se|do)_sys_"
        r"|ksys_|do_el0)",
    ),
    (
        "FUSE",
        r"(__)?fuse_|request_wait_answer|request_end|queue_request|queue_interrupt|flush_bg_queue"
        r"|virtio_fs_|cuse_",
    ),
    (
        "scheduler",
        r"_*schedule|io_schedule|preempt_schedule|_*cond_resched|try_to_wake_up|wake_up_|_*wake_up"
        r"|default_wake|autoremove_wake|pollwake|ep_poll_callback|ttwu_|finish_task|dequeue_|enqueue_"
        r"|pick_next|set_next|prepare_to_wait|futex_wait|exit_to_user_mode|irqentry_|hrtimer_"
        r"|do_nanosleep|rwsem_|_*mutex_|mutex_|_*down_|wait_for_completion|_*traceiter_sched"
        r"|folio_wait|wait_on_page|_raw_spin",
    ),
    (
        "VFS",
        r"vfs_|path_|filename_|filemap_|lookup_|_*lookup_slow|walk_component|link_path_walk|do_open"
        r"|do_filp_open|open_last|may_open|iterate_dir|_*d_|dput|_*dentry|iput|inode_|generic_|simple_"
        r"|new_sync|do_iter|do_readlinkat|do_statx|do_getxattr|getxattr|listxattr|user_path|user_get"
        r"|user_statfs|getname|statfs_|page_cache|read_pages|force_page|ondemand_|folio_|security_inode"
        r"|do_sendfile|splice_|do_splice|_*fput|touch_atime|notify_|terminate_walk|step_into"
        r"|pick_link|complete_walk|try_to_unlazy|set_nameidata|do_dentry_open|do_fault|filp_",
    ),
)
_KERNEL_KINDS = [(kind, re.compile(pattern)) for kind, pattern in _KERNEL]


# Frames of the core that are no functions: a daemon had a request, but which of its threads worked
# on it is not known; and whether it had it yet is not known, either.
UNKNOWN_THREAD, UNREAD = "[daemon, thread unknown]", "[queue or daemon]"
_IN_FUSE = (
    *("[queue]", "[dispatch]", "[reply]", "[wakeup]", UNREAD),
    *("[unfinished]", "[interrupted]", "[aborted]"),
)


def kind_of(
    name: str,
    path: str,
    in_kernel: bool,
    daemons: Collection[str] = (),
    callbacks: Collection[str] = (),
) -> str | None:
    """The kind of a frame: of the kernel, or of the file ``path`` ("" for none).

    ``daemons``: the names of the daemons' processes, whose program and client libraries are the
    daemon's own; ``callbacks``: functions of theirs.
    """
    if in_kernel:
        found = (kind for kind, pattern in _KERNEL_KINDS if pattern.match(name))
        return next(found, "kernel")
    if path:
        file = os.path.basename(path)
        if file in daemons or re.match(r"lib(cvmfs|fuse)", file):
            return "daemon"
        return "library" if ".so" in file or file == "[vdso]" else "program"
    if name.startswith("[FUSE "):
        return "FUSE"
    if name in _IN_FUSE:
        return "FUSE"
    if name in ("[runnable]", "[preempted]", "[blocked or runnable]"):
        return "scheduler"
    if name in ("[on CPU]", "[daemon]", UNKNOWN_THREAD) or name in callbacks:
        return "daemon"
    if name.startswith("[") and name != "[unknown]":
        return "system call"
    return None


def operations_of(patterns: Sequence[str], known: Iterable[str]) -> list[str]:
    """The operations that match one of the shell patterns; Error where one matches none."""
    known = sorted(known)
    found: list[str] = []
    for pattern in patterns:
        matching = [name for name in known if fnmatchcase(name, pattern)]
        if not matching:
            raise Error(f"there is no FUSE operation {pattern}", f"there are: {', '.join(known)}")
        found += matching
    return found


def question(
    graph: str, catalogue: Sequence[Probe], described: dict[str, Any], by_request: bool
) -> list[Probe]:
    """The rows of the catalogue that the core needs. Error: what is missing, and what brings it."""
    from fusetools.recording import Probe

    name = described["name"]
    record = "fusetools record -- WORKLOAD"
    if (detail := described.get("detail", "stacks")) != "stacks":
        raise Error(
            f"{name} holds no stacks", f"recorded with --detail {detail}", described["again"]
        )
    stacks = set(described["stacks"])
    events = set(described["events"])
    requests = needed(catalogue, described["events"])

    def stack(event: str) -> Probe:
        return Probe(event, "syscall", "", "", "stack")

    if graph == "on-cpu":
        sampled = [event for event, _ in described["samples"]]
        if not sampled:
            raise Error(f"{name} holds no samples of what ran", "none were recorded", record)
        # As stackcollapse-perf.pl: counts of different things do not add up.
        return [stack(sampled[0]), *(requests if by_request else [])]
    switch, waking = "sched:sched_switch", "sched:sched_waking"
    if graph != "requests" and switch not in events:
        raise Error(f"{name} holds no switches of tasks", "no off-CPU events were recorded", record)
    if graph != "requests" and switch not in stacks:
        raise Error(f"{name} holds no stacks", "its switches were recorded without any", record)
    begins = [p.event for p in catalogue if p.role == "begin"]
    if graph == "requests" and not begins:
        raise Error(f"{name} tells of no requests", "where they begin was not recorded", record)
    with_stack = [switch, *begins, *([waking] if graph == "off-wake" else [])]
    # After the rows whose events they are of.
    return [*requests, *(stack(event) for event in with_stack if event in stacks)]


def symbols(kallsyms: str | None, symfs: str | None) -> dict[str, str]:
    """What is to name functions instead of the recording. Error: it is not there."""
    for path in (kallsyms, symfs):
        if path is not None and not answers(path):
            raise Error(f"cannot read {path}", "its file system does not answer")
    if kallsyms is not None and not Path(kallsyms).is_file():
        raise Error(f"cannot read {kallsyms}", "there is no such file")
    if symfs is not None and not Path(symfs).is_dir():
        raise Error(f"cannot read {symfs}", "there is no such directory")
    given = {"kallsyms": kallsyms, "symfs": symfs}
    return {name: path for name, path in given.items() if path is not None}


def stacks_of(
    graph: str,
    found: dict[str, Any],
    unit: str,
    facts: Facts,
    asked: str,
    daemons: Collection[str],
    callbacks: Collection[str],
    given: dict[str, str],
    merge: str,
    again: str,
) -> Stacks:
    """The core's answer as a result.

    ``given``: what named functions instead of the recording, as of ``symbols``; ``merge``: the
    command that puts what names them into the recording, and where; ``again``: the one that records
    whole stacks, "" where none does.
    """
    # Off the CPU in us, as the scripts that users know print them.
    in_us = graph != "on-cpu"
    kinds = {}
    for name, path, in_kernel in found["frames"]:
        kind = kind_of(name, path, in_kernel, daemons, callbacks)
        if kind:
            kinds[name] = kind
    return Stacks(
        graph=graph,
        asked=asked,
        stacks={s: w / 1000 for s, w in found["stacks"].items()} if in_us else found["stacks"],
        unit="us" if in_us else unit,
        kinds=kinds,
        count=found["shown"][0],
        total=found["shown"][1],
        stackless=found["stackless"],
        cut=_cut(graph, found),
        left_out=LeftOut(
            idle=tuple(found["idle"]), own=tuple(found["own"]), others=tuple(found["others"])
        ),
        unfinished=found["unfinished"],
        states=found["states"],
        daemons=found["daemons"],
        shared=found["shared"],
        kernel=_named(found["kernel"], given.get("kallsyms")),
        user=_named(found["user"], given.get("symfs")),
        notes=tuple(_notes(graph, found, given, merge, again)),
        facts=facts,
    )


def _cut(graph: str, found: dict[str, Any]) -> int | None:
    """By frame pointers only the name of what is outermost tells whether a stack is whole."""
    return found["cut"] if graph != "requests" and found["user"][0] else None


def _named(found: tuple[bool, int, int], given: str | None) -> Named:
    known, addresses, nameless = found
    return Named(given or "recording" if known else "", addresses, nameless)


def _notes(
    graph: str, found: dict[str, Any], given: dict[str, str], merge: str, again: str
) -> Iterator[str]:
    def listed(files: Sequence[str]) -> str:
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        return f"{', '.join(files[:3])}{more}"

    known, addresses, nameless = found["kernel"]
    if nameless and not known:
        yield (
            f"{nameless:,} of {addresses:,} kernel addresses have no name: the recording holds no "
            "kernel symbols; --kallsyms FILE takes them from a copy of its host's /proc/kallsyms "
            f"of that boot; {merge}"
        )
    if found["copied"]:
        yield f"copies of user stacks are not unwound; {merge}"
    known, addresses, nameless = found["user"]
    if nameless and not known:
        yield (
            f"{nameless:,} of {addresses:,} user addresses have no name: the recording holds no "
            f"user symbols; --symfs DIR takes them from the programs' files below DIR; {merge}"
        )
    elif files := found["without_symbols"]:
        where = f"not below {given['symfs']}" if "symfs" in given else "not in the recording"
        yield f"{where}, or another file: {listed(files)}; --symfs DIR names them by files in DIR"
    if known and (files := found["stripped"]):
        yield f"no symbols for a part of {listed(files)}: record with their debug symbols installed"
    total, cut = found["shown"][1], _cut(graph, found) or 0
    if cut * 1000 >= total > 0:
        share = f"{100 * cut / total:.1f} %".replace(".0 %", " %")
        fix = f"; fix: {again}" if again and not found["copied"] else ""
        yield f"{share} of the time has stacks cut before their thread's start{fix}"
    if graph == "off-wake" and found["wakers"] and found["wakers_stackless"] == found["wakers"]:
        yield "the wakers' stacks were not recorded: fusetools record --wakers -- WORKLOAD"
    if found["full"]:
        yield "too many different stacks: some are cut"


def sampled(taken: int, alike: int) -> Iterator[str]:
    """Of switches so many stacks were taken, and for so many that of another one stands."""
    if alike and taken:
        yield (
            f"stacks were sampled: {alike:,} of {taken + alike:,} waits have that of the last wait "
            "alike (same process, system call and operation); times are exact, shares of stacks "
            f"within {98 / taken**0.5:.1f} % (95 % confidence)"
        )


def folded_graph(nodes: Iterable[GraphNode]) -> Iterator[tuple[str, float]]:
    """Of trees of calls the stacks, each with the us of its own: the width is the wall time."""

    def walk(node: GraphNode, above: str) -> Iterator[tuple[str, float]]:
        path = f"{above};{node.function}" if above else node.function
        if node.self_time > 0:
            yield path, node.self_time / 1000
        for child in node.children:
            yield from walk(child, path)

    for node in nodes:
        yield from walk(node, "")
