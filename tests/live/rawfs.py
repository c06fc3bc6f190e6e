"""A FUSE daemon without any library: it speaks the protocol on /dev/fuse, with one directory.

`rawfs.py MOUNT --workers N --delay SECONDS`: with N workers one thread reads and hands each request
to a worker (as Go's daemons do); without workers the thread that reads also answers. Each lookup
sleeps for the delay. Requests with the opcodes of `--silent N,N` are read and never answered. The
daemon prints "ready PID" when mounted, and its numbers of answers as JSON on SIGTERM.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import queue
import signal
import struct
import threading
import time
from collections import Counter

# include/uapi/linux/fuse.h
IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
NAMES = {1: "lookup", 3: "getattr", 26: "init", 27: "opendir", 28: "readdir", 29: "releasedir"}
NO_REPLY = (2, 36, 42)  # forget, interrupt, batch_forget
ENOSYS, ENOENT = 38, 2
DIRECTORY, FILE = 0o040755, 0o100644


class Daemon:
    def __init__(self, path: str, workers: int, delay: float, silent: str = "") -> None:
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self.delay = delay
        self.silent = {int(word) for word in silent.split(",") if word}
        self.answered: Counter[str] = Counter()
        self.work: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.workers = workers
        for _ in range(workers):
            threading.Thread(target=self.serve, daemon=True).start()
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"rawfs", path.encode(), b"fuse.rawfs", 6, options.encode()):
            raise OSError(ctypes.get_errno(), "cannot mount")

    def run(self) -> None:
        while True:
            try:
                request = os.read(self.fd, 1 << 17)
            except FileNotFoundError:  # interrupted before it was copied
                continue
            except OSError:  # ENODEV: unmounted
                return
            if self.workers:
                self.work.put(request)
            else:
                self.answer(request)

    def serve(self) -> None:
        while True:
            self.answer(self.work.get())

    def answer(self, request: bytes) -> None:
        _, opcode, unique, nodeid, *_ = IN_HEADER.unpack_from(request)
        if opcode in NO_REPLY or opcode in self.silent:
            return
        error, body = self.handle(opcode, nodeid, request[IN_HEADER.size :])
        name = NAMES.get(opcode, str(opcode))
        self.answered[name] += 1
        os.write(self.fd, OUT_HEADER.pack(OUT_HEADER.size + len(body), -error, unique) + body)

    def handle(self, opcode: int, nodeid: int, body: bytes) -> tuple[int, bytes]:
        if opcode == 26:
            return 0, struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 12, 9, 65536, 1, 0, 0, 0, *[0] * 7)
        if opcode == 1:
            time.sleep(self.delay)
            name = body.rstrip(b"\0")
            if not name.startswith(b"file"):
                return ENOENT, b""
            inode = 2 + sum(name)
            return 0, struct.pack("<QQQQII", inode, 0, 0, 0, 0, 0) + attributes(inode)
        if opcode == 3:
            return 0, struct.pack("<QII", 0, 0, 0) + attributes(nodeid)
        if opcode == 27:
            return 0, struct.pack("<QII", 1, 0, 0)
        if opcode in (28, 29):
            return 0, b""
        return ENOSYS, b""


def attributes(inode: int) -> bytes:
    mode = DIRECTORY if inode == 1 else FILE
    return ATTR.pack(inode, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mount")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--silent", default="")
    given = parser.parse_args()
    daemon = Daemon(given.mount, given.workers, given.delay, given.silent)

    def end(*_: object) -> None:
        print(json.dumps(daemon.answered), flush=True)
        ctypes.CDLL(None).umount2(given.mount.encode(), 2)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=daemon.run, daemon=True).start()
    print(f"ready {os.getpid()}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
