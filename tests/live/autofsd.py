"""An automounter that never mounts: autofsd.py PATH HOW.

It prints "mounted", reads requests, and handles them as HOW says. "never": it does nothing.
"child": it waits for a child that hangs, as a mount helper does, and prints the child's number.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

path, how = sys.argv[1:]
os.setsid()  # processes of its process group see the mount point as it is
asked, ask = os.pipe()
options = f"fd={ask},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect"
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"test", path.encode(), b"autofs", 0, options.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
os.close(ask)
print("mounted", flush=True)
os.read(asked, 4096)
if how == "child":
    with subprocess.Popen(["sleep", "1000"]) as child:
        print(child.pid, flush=True)
time.sleep(1000)
