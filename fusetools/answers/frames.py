"""Classification of stack frames, for the colours of flame graphs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

# Patterns of kernel functions' names. The first match counts. Kinds follow Linux's directories.
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


# Frames that the core adds in place of functions. UNKNOWN_THREAD: the daemon had the request, but
# its working thread is unknown. UNREAD: it is unknown whether the daemon had read the request.
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
    """Return the kind of a frame in the kernel or in the file ``path`` ("" for none).

    ``daemons``: names of the daemons' processes; their programs, libcvmfs* and libfuse* are of kind
    "daemon". ``callbacks``: names of the daemons' callbacks.
    """
    if in_kernel:
        kinds = (kind for kind, pattern in _KERNEL_KINDS if pattern.match(name))
        return next(kinds, "kernel")
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
