"""Names in recordings, and values of options: cli/ needs them before it imports anything else."""

from __future__ import annotations

LAYERS = ("syscall", "kernel", "request", "daemon")  # from the caller to the daemon
# Groupings of requests by --by.
BY = ("file", "directory", "process", "comm", "user", "cgroup", "job", "host")

# Groupings of rows of `top`, in the order in which its key changes them; a job has a cgroup.
TOP_BY = ("operation", "process", "user", "cgroup", "mount", "file", "directory", "thread")
TOP_SORTS = ("requests", "waited", "p50", "p99", "max", "bytes", "errors", "under_way")

# Values of a recording's options. Details: cheapest first; each records what the previous ones do,
# and more.
BACKENDS = ("auto", "graph", "kprobe", "tracepoint")
CALL_GRAPHS = ("auto", "fp", "dwarf", "kernel")
DETAILS = ("latency", "stages", "stacks")

# Bytes that are copied of a user stack. These shares of stacks reached the thread's start (Debian
# 12; sample client as shipped, bindfs, sshfs; all waits but those for the next request):
# 1 KB: 64, 0, 47 %; 2 KB: 92, 93, 97 %; 4 KB: 99.3, 94, 95 %; 8 or 16 KB: 100 % of all.
# The difference is path buffers of 4,096 bytes on the stack; posixovl has several. perf copies at
# most MOST_STACK_BYTES.
STACK_BYTES = 8192
LEAST_STACK_BYTES = 512
MOST_STACK_BYTES = 65528

# Shows the peers to which a daemon connects.
CONNECT = "sock:inet_sock_set_state"

# Signals to callers: while one waits for a request, the kernel sends the daemon an INTERRUPT.
SIGNAL = "signal:signal_generate"

# Reads of pipes and sockets. raw_syscalls has them too, but its filter cannot select a descriptor.
READS = ("syscalls:sys_enter_read", "syscalls:sys_enter_readv")
# File locks; here too, raw_syscalls' filter cannot select fcntl's command.
LOCKS = "syscalls:sys_enter_fcntl"

# FUSE over io_uring: a request fetched from a ring, a reply committed to it, a wait for a request.
RINGS = {
    "fetched": "io_uring:io_uring_complete",
    "committed": "io_uring:io_uring_submit_req",
    "ring_wait": "io_uring:io_uring_cqring_wait",
}

# Magic numbers at the start of the files.
PERF_DATA = b"PERFILE2"
TRACE_DAT = b"\x17\x08\x44tracing"

# Function whose probe is timed to measure a probe's cost (see record/); never part of an answer.
CALIBRATION = "fusetools_calibrate"

# Suffix of the file with ftrace's events, if they are not merged into the recording.
FTRACE = ".ftrace"
OF_TASKS = ".tasks"  # the same, of what perf recorded of single tasks


def given(path: str) -> list[str]:
    """Return the options by which a command reads this recording: none for the default one."""
    return [] if path == "perf.data" else ["-i", path]
