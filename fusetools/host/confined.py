"""Those who refuse something to a root that has the capabilities: a seccomp filter, or a security
module."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re

from fusetools.host.files import Files

# arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_WRONG_FLAGS = 1 << 30


def confinement(files: Files) -> str:
    """Return the security module that confines this process, and by what: "SELinux's type
    container_t", "AppArmor's profile docker-default"; "" if none does.

    See apparmor(7) and selinux(8); /proc/self/attr/current in proc_pid_attr(5).
    """
    label = files.read("/proc/self/attr/current", quiet=True) or ""
    label = label.strip("\0\n ")
    if profile := re.fullmatch(r"(\S+) \((enforce|kill|mixed)\)", label):
        return f"AppArmor's profile {profile[1]}"
    parts = label.split(":")
    enforcing = (files.read("/sys/fs/selinux/enforce", quiet=True) or "").strip() == "1"
    return f"SELinux's type {parts[2]}" if enforcing and len(parts) > 2 else ""


def perf_refused(arch: str) -> str:
    """Return who refuses perf_event_open(2) to this process, whatever its arguments are: "seccomp",
    "module" (a security module), or "" if nobody is known to.

    The kernel looks at the flags first, and says EINVAL to wrong ones: a filter does not. Before
    it reads the attributes it asks the security modules (kernel/events/core.c; from 5.5 on).
    """
    number = _PERF_EVENT_OPEN.get(arch)
    if number is None or not os.path.exists("/proc/sys/kernel/perf_event_paranoid"):
        return ""
    with contextlib.suppress(OSError):
        call = ctypes.CDLL(None, use_errno=True).syscall

        def answer(flags: int) -> int:
            words = (ctypes.c_long(word) for word in (number, 0, 0, -1, -1, flags))
            return ctypes.get_errno() if call(*words) < 0 else 0

        if answer(_WRONG_FLAGS) in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            return "seccomp"
        if answer(0) == errno.EACCES:
            return "module"
    return ""
