"""Names in recordings: operations, layers, tracepoints and file suffixes."""

from __future__ import annotations

LAYERS = ("syscall", "kernel", "request", "daemon")  # from the caller to the daemon


# enum fuse_opcode of include/uapi/linux/fuse.h, in lower case.
# fmt: off
OPCODES = {
    1: "lookup", 2: "forget", 3: "getattr", 4: "setattr", 5: "readlink", 6: "symlink", 8: "mknod",
    9: "mkdir", 10: "unlink", 11: "rmdir", 12: "rename", 13: "link", 14: "open", 15: "read",
    16: "write", 17: "statfs", 18: "release", 20: "fsync", 21: "setxattr", 22: "getxattr",
    23: "listxattr", 24: "removexattr", 25: "flush", 26: "init", 27: "opendir", 28: "readdir",
    29: "releasedir", 30: "fsyncdir", 31: "getlk", 32: "setlk", 33: "setlkw", 34: "access",
    35: "create", 36: "interrupt", 37: "bmap", 38: "destroy", 39: "ioctl", 40: "poll",
    41: "notify_reply", 42: "batch_forget", 43: "fallocate", 44: "readdirplus", 45: "rename2",
    46: "lseek", 47: "copy_file_range", 48: "setupmapping", 49: "removemapping", 50: "syncfs",
    51: "tmpfile", 52: "statx", 53: "copy_file_range_64",
}
# fmt: on
OPERATIONS = frozenset(OPCODES.values())

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
