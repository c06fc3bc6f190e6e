"""A process that calls a mount: caller.py PATH GO.

It waits for the file GO. Then it looks up PATH from old and new threads, from an old child, and
from a new child of that child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

PATH, GO = sys.argv[1:]


def look(times: int) -> None:
    for _ in range(times):
        os.stat(PATH)


def later(times: int) -> None:
    while not os.path.exists(GO):
        time.sleep(0.05)
    look(times)


threads = [threading.Thread(target=later, args=(101,)) for _ in range(3)]
for thread in threads:
    thread.start()
child = os.fork()
if child == 0:
    later(211)
    grandchild = os.fork()
    if grandchild == 0:
        look(307)
        os._exit(0)
    os.waitpid(grandchild, 0)
    os._exit(0)
print(child, flush=True)
later(401)
threads += [threading.Thread(target=look, args=(103,)) for _ in range(2)]
for thread in threads[3:]:
    thread.start()
for thread in threads:
    thread.join()
subprocess.run(["stat", "-c", "%s", PATH], stdout=subprocess.DEVNULL, check=True)
os.waitpid(child, 0)
