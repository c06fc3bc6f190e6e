"""Names in recordings: layers, tracepoints and file suffixes."""

from __future__ import annotations

LAYERS = ("syscall", "kernel", "request", "daemon")  # from the caller to the daemon
# Groupings of requests by --by.
BY = ("file", "directory", "process", "comm", "user", "cgroup", "job", "host")

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
