"""The purpose of a thread, from its own stack. Pure."""

from __future__ import annotations

import re

from fusetools.starts import start_of
from fusetools.stuck.moment import Task

# The schedulers of Go (runtime/lock_futex.go, netpoll_epoll.go, proc.go) and of tokio's workers,
# one of which waits for descriptors. tokio's block_on is not among them: a thread waits there for a
# task of its own.
_SCHEDULER = re.compile(
    r"runtime\.(futexsleep|notet?sleep|netpoll|usleep)|(internal/)?runtime/(internal/)?syscall[\w/]*"
    r"\.EpollWait|tokio::runtime::scheduler::multi_thread::(park|worker::Context::park)"
)


def start_function(task: Task) -> str:
    """Return the function with which a thread began: a thread's name says little (all threads of
    CernVM-FS are called cvmfs2).

    Return "" if its stack does not reach its start, if the function has no name, or for a
    process's first thread.
    """
    if not task.user_whole or task.tid == task.pid:
        return ""
    return start_of(reversed(task.user))


def waits_for_workers(task: Task) -> bool:
    """Return whether it is libfuse's main thread, which lets other threads work (libfuse's
    lib/fuse_loop_mt.c)."""
    loops = ("fuse_session_loop_mt", "fuse_loop_mt")
    return task.call == "futex" and any(name.startswith(loops) for name in task.user)


def idles(task: Task) -> bool:
    """Return whether a thread belongs to a runtime with its own tasks, and has none to run.

    The tasks themselves wait in memory alone. A thread that polls sockets may wait for a socket of
    one of the tasks.
    """
    if task.polls and task.on_device and any(fd.own for fd in task.descriptors):
        return True  # an event loop, which reads requests, too
    idle = any(_SCHEDULER.match(name) for name in task.user[:8])
    sockets = any(fd.socket and not fd.own for fd in task.descriptors)
    return idle and task.state in "DS" and not sockets


def accepts(task: Task) -> bool:
    """Return whether a thread waits only for new connections, or for its own process to wake it up.

    Nobody may ever connect. Its process wakes it up by a pipe or an eventfd.
    """
    others = [
        fd
        for fd in task.descriptors
        if not fd.own and (fd.other or not fd.link.startswith("anon_inode:"))
    ]
    listening = [fd for fd in others if fd.socket and fd.socket.state == "LISTEN"]
    return bool(others) and len(listening) == len(others)


def has_work(task: Task) -> bool:
    """Return whether a thread is busy or blocked: not ended, and not idle, as far as its stack
    shows."""
    idle = task.reads_device or task.may_read_device or waits_for_workers(task)
    idle = idle or task.call in SIGNALS or _takes_commands(task)
    return task.state not in "ZX" and not (idle or idles(task) or accepts(task))


# Functions of a watchdog and of a command server, of CernVM-FS and others.
_COMMANDS = re.compile(r"watchdog|command_?(server|loop)|talkmanager|maintalk", re.IGNORECASE)


def _takes_commands(task: Task) -> bool:
    """Return whether a thread waits for commands, or watches others: it works for no request."""
    return task.call != "futex" and any(
        _COMMANDS.search(name.partition("(")[0]) for name in task.user
    )


def is_paused(task: Task) -> bool:
    """Return whether a thread of the CernVM-FS loader waits for SIGUSR1 to end a paused reload
    (cvmfs/loader.cc)."""
    return any(name.partition("(")[0].endswith("WaitForSignal") for name in task.user)


def downloads(task: Task) -> bool:
    """Return whether a thread downloads files, as far as its stack shows."""
    return any("download" in name.lower() or name.startswith("curl_") for name in task.user)


SIGNALS = ("pause", "rt_sigsuspend", "rt_sigtimedwait")  # functions that wait only for a signal


def in_callback(task: Task) -> bool:
    """Return whether libfuse has called a thread's function, so that it works for a request.

    The thread's stack decides.
    """
    return any(name.startswith(("fuse_", "[libfuse")) for name in task.user)


SLEEPS = ("nanosleep", "clock_nanosleep")


def kind_of_wait(task: Task) -> str:
    """Return one of results.stuck.KINDS for a thread that waits for no other thread, process or
    mount."""
    if task.state in "Tt":
        return "traced" if task.tracer else "stopped"
    if task.state == "R":
        return "on_cpu"
    if any(fd.socket and not fd.own for fd in task.descriptors):
        return "socket"
    if task.descriptors and all(fd.own for fd in task.descriptors):
        return "condition"  # a wait that another thread ends
    if task.call in SLEEPS:
        return "sleep"
    if task.call == "futex":
        return "condition"
    return "file" if task.path or task.state == "D" or task.descriptors else "unknown"


# Functions of fs/fuse/dev.c and file.c; Linux 3.10 to 4.0 has other names.
_OF_BACKGROUND = (
    "fuse_simple_background", "fuse_get_req_for_background", "fuse_readahead", "fuse_readpages",
    "fuse_send_readpages", "fuse_writepage", "fuse_direct_io",
)  # fmt: skip
_OF_FOREGROUND = ("fuse_simple_request", "__fuse_simple_request", "__fuse_get_req")


def has_request(task: Task) -> bool:
    """Return whether one of the waiting requests is this thread's."""
    return any(name.startswith("request_wait_answer") for name in (*task.stack, task.wchan))


def cannot_send(task: Task) -> str:
    """Return the kind of request that waits in fuse_get_req.

    "background" waits for room in the background list, "foreground" for the connection to be ready
    (fuse_block_alloc). Return "" if unknown, or if the thread does not wait there.
    """
    names = (*task.stack, task.wchan)
    if not any(name.startswith(("fuse_get_req", "__fuse_get_req")) for name in names):
        return ""
    if any(name.startswith(_OF_BACKGROUND) for name in names):
        return "background"
    return "foreground" if any(name.startswith(_OF_FOREGROUND) for name in task.stack) else ""


def in_reload(task: Task) -> bool:
    """Return whether a thread waits at the CernVM-FS loader's fence, at the entry of its callbacks
    (cvmfs/fence.h)."""
    names = [name.partition("(")[0].rpartition("::")[2] for name in task.user]
    return any(
        inner in ("SafeSleepMs", "Enter") and outer.startswith("stub_")
        for inner, outer in zip(names, names[1:])
    )
