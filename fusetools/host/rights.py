"""Limits the rights of a child that reads files that anybody may have created.

Import this module before the child drops its rights: afterwards the child may be unable to read
Python's own files.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from pathlib import Path

NOBODY = 65534


def limit_memory(memory: int, seconds: int | None = 60) -> None:
    """Limit this process: additional memory, CPU time, no core file."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def hide_kernel_symbols() -> None:
    """Keep the program that this child will run from the kernel's symbols (CAP_SYSLOG).

    perf reads them three times at its start, 0.1 s of CPU time, unless they are hidden from it: so
    they are where kptr_restrict is not 0, or perf_event_paranoid is above 1 (perf's
    symbol__read_kptr_restrict, the kernel's kallsyms_show_value).
    """
    ctypes.CDLL(None).prctl(24, 34, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYSLOG


def drop_to(user: int, group: int) -> None:
    """Drop all rights but those of that user. Raise OSError if that is impossible."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)


def drop_privileges() -> None:
    """Drop all rights of a child but its open files and those that any user has, before it reads
    foreign files."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # in a user namespace without such a user
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
