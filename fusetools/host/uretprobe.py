"""Effects of user return probes on the probed process, on this kernel.

Linux 6.11 to 6.13 make a system call where a probed function returns (x86-64 only), and show it to
seccomp filters. The filters do not know the call: the daemon gets an error or SIGKILL. Linux 6.14
exempts the call ("seccomp: passthrough uretprobe systemcall without filtering"), as do later stable
6.12 and 6.13. The version does not show this, so it is tried.

User shadow stacks (x86, Linux 6.6) hold a copy of each return address. Until 6.11 a return probe
changes only the original ("x86/shstk: Make return uprobe work with shadow stack").
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import struct

from fusetools.host.files import Files

NUMBER = 335  # number of the system call, arch/x86/entry/syscalls/syscall_64.tbl
IS_CALL = "__x64_sys_uretprobe"  # the kernel's function
KEEPS_SHADOW = "shstk_update_last_frame"  # the kernel's function that fixes the copy
MOST_THREADS = 256

# include/uapi/linux/prctl.h, seccomp.h
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_REFUSE, _ALLOW = 0x00050000, 0x7FFF0000
_OURS = 118  # an errno that no other call returns


def filtered(kallsyms: str, arch: str) -> bool | None:
    """Return whether seccomp filters see a return probe's system call; None if that cannot be
    tried."""
    if arch != "x86_64" or (kallsyms and f" {IS_CALL}\n" not in kallsyms):
        return False
    # ld [nr]; jeq NUMBER: ret ERRNO; ret ALLOW
    program = struct.pack("<HBBI", 0x20, 0, 0, 0) + struct.pack("<HBBI", 0x15, 0, 1, NUMBER)
    program += struct.pack("<HBBI", 6, 0, 0, _REFUSE | _OURS) + struct.pack(
        "<HBBI", 6, 0, 0, _ALLOW
    )
    code = ctypes.create_string_buffer(program)
    described = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        status = 3
        with contextlib.suppress(BaseException):
            # The child may end by SIGILL: the call is valid only in return probes.
            signal.signal(signal.SIGILL, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
            libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            if libc.prctl(_PR_SET_SECCOMP, 2, described, 0, 0) == 0:
                libc.syscall(NUMBER)
                status = 1 if ctypes.get_errno() == _OURS else 2
        os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) != signal.SIGILL
    return {1: True, 2: False}.get(os.WEXITSTATUS(status))


def guards(files: Files, pid: int) -> tuple[bool, bool]:
    """Return whether any of a process's threads has (a seccomp filter, a shadow stack)."""
    seccomp = shadow = False
    tasks = [name for name in files.list(f"/proc/{pid}/task") if name.isdecimal()]
    for task in [f"/proc/{pid}", *(f"/proc/{pid}/task/{name}" for name in tasks[:MOST_THREADS])]:
        status = files.read(f"{task}/status", quiet=True) or ""
        seccomp |= re.search(r"^Seccomp:\s*[1-9]", status, re.MULTILINE) is not None
        shadow |= re.search(r"^x86_Thread_features:.*\bshstk\b", status, re.MULTILINE) is not None
    return seccomp, shadow
