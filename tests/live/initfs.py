"""initfs.py MOUNT unread|kept: a daemon whose mount(2) waits for FUSE_INIT (Linux 6.18).

Nobody reads the request ("unread"), or another thread has read it and does not answer ("kept"). It
prints "NAME TID" lines.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import threading
import time

SYNC_INIT = 229 << 8 | 3  # FUSE_DEV_IOC_SYNC_INIT


def main() -> None:
    path, mode = sys.argv[1:3]
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, SYNC_INIT)
    except OSError:
        print("unsupported 0", flush=True)
        return

    def keep() -> None:
        os.read(fd, 1 << 17)
        print("keeps", threading.get_native_id(), flush=True)
        time.sleep(999)

    if mode == "kept":
        threading.Thread(target=keep, daemon=True).start()
    print("mounts", os.getpid(), flush=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    ctypes.CDLL(None).mount(b"initfs", path.encode(), b"fuse.initfs", 6, options.encode())


if __name__ == "__main__":
    main()
