"""sealed.py COMMAND: runs it with a seccomp filter that kills it at a return probe's system call.

Linux 6.11 and later make this call (host/uretprobe.py).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

NUMBER = 335
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000


def main() -> None:
    # ld [nr]; jeq NUMBER: ret KILL_PROCESS; ret ALLOW
    rows = ((0x20, 0, 0, 0), (0x15, 0, 1, NUMBER), (6, 0, 0, KILL_PROCESS), (6, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(rows), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, 2, described, 0, 0
    ):
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execvp(sys.argv[1], sys.argv[1:])


main()
