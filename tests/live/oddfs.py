"""oddfs.py MOUNT MODE: a FUSE daemon (rawfs.py) of an unusual shape; it prints "NAME PID" lines.

supervisor: this process mounts and waits, its child serves; prefork: two children serve. handover:
the first child exits after it has read a lookup of "file-old", and another one serves from then on,
50 ms later. handover-now: the first child exits 50 ms after it has read it, when the caller sleeps;
the other one serves at once.
drop: requests of "file-drop" are never answered. locks: the daemon keeps file locks itself, and
delays the answer to a waiting caller until the lock is free. killed: the daemon invalidates a page
locked by a READ that it never answers.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import time

import rawfs

LOOKUP, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT = 1, 3, 14, 15, 18, 25, 26
GETLK, SETLK, SETLKW = 31, 32, 33
UNLOCK, RELEASE_FLOCK = 2, 2
LOCKS = 1 << 1 | 1 << 10  # FUSE_POSIX_LOCKS, FUSE_FLOCK_LOCKS
PARALLEL = 1 << 18  # FUSE_PARALLEL_DIROPS: a lookup does not wait for other lookups
INVALIDATE_INODE = 2
EAGAIN = 11


def say(name: str, pid: int) -> None:
    print(name, pid, flush=True)


class Odd(rawfs.Daemon):
    def __init__(self, path: str, mode: str) -> None:
        super().__init__(path, 0, 0)
        self.mode = mode
        self.held: dict[int, int] = {}  # owner of the lock of each node
        self.waits: list[tuple[int, int, int]] = []  # unique, node, owner
        self.answer(os.read(self.fd, 1 << 17))  # INIT

    def reply(self, unique: int, error: int = 0, body: bytes = b"") -> None:
        os.write(self.fd, rawfs.OUT_HEADER.pack(16 + len(body), -error, unique) + body)

    def answer(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = rawfs.IN_HEADER.unpack_from(request)
        body = request[rawfs.IN_HEADER.size :]
        if self.mode == "drop" and b"file-drop" in body:
            return
        if opcode == OPEN:
            self.reply(unique, body=struct.pack("<QII", 5, 0, 0))
        elif opcode in (SETLK, SETLKW):
            owner, kind = struct.unpack_from("<8xQ16xI", body)
            if kind == UNLOCK:
                self.free(node, owner)
                self.reply(unique)
            elif self.held.setdefault(node, owner) == owner:
                self.reply(unique)
            elif opcode == SETLKW:
                self.waits.append((unique, node, owner))
            else:
                self.reply(unique, EAGAIN)
        elif opcode in (RELEASE, FLUSH):
            flags, owner = struct.unpack_from("<8x4xIQ", body)
            if opcode == FLUSH or flags & RELEASE_FLOCK:
                self.free(node, owner)
            self.reply(unique)
        elif opcode == READ and self.mode == "killed":
            threading.Thread(target=self.invalidate, args=[node]).start()
        else:
            super().answer(request)

    def free(self, node: int, owner: int) -> None:
        if self.held.get(node) != owner:
            return
        del self.held[node]
        for waiting in [w for w in self.waits if w[1] == node][:1]:
            self.waits.remove(waiting)
            self.held[node] = waiting[2]
            self.reply(waiting[0])

    def invalidate(self, node: int) -> None:
        say("invalidates", threading.get_native_id())
        os.write(self.fd, struct.pack("<IiQQqq", 40, INVALIDATE_INODE, 0, node, 0, 0))

    def handle(self, opcode: int, nodeid: int, body: bytes) -> tuple[int, bytes]:
        error, answer = super().handle(opcode, nodeid, body)
        if opcode == INIT:
            flags = PARALLEL | (LOCKS if self.mode == "locks" else 0)
            answer = answer[:12] + struct.pack("<I", flags) + answer[16:]
        if opcode in (LOOKUP, GETATTR) and answer and nodeid != (1 if opcode == GETATTR else 0):
            at = len(answer) - rawfs.ATTR.size + 8  # read as many bytes as the header says
            answer = answer[:at] + struct.pack("<Q", 1 << 20) + answer[at + 8 :]
        return error, answer

    def serve_from_a_child(self, name: str, until: bytes = b"") -> int:
        pid = os.fork()
        if pid:
            say(name, pid)
            return pid
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            try:
                request = os.read(self.fd, 1 << 17)
            except FileNotFoundError:
                continue
            except OSError:
                os._exit(0)
            if until and until in request:
                if self.mode == "handover-now":
                    time.sleep(0.05)
                os._exit(0)
            self.answer(request)


def main() -> None:
    path, mode = sys.argv[1:3]
    daemon = Odd(path, mode)
    children = []
    if mode in ("supervisor", "prefork"):
        children = [daemon.serve_from_a_child("server") for _ in range(1 + (mode == "prefork"))]
    elif mode.startswith("handover"):
        children = [daemon.serve_from_a_child("first", b"file-old")]
    else:
        threading.Thread(target=daemon.run, daemon=True).start()

    def end(*_: object) -> None:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    say("mounted", os.getpid())
    if mode.startswith("handover"):
        os.waitpid(children.pop(), 0)
        if mode == "handover":
            time.sleep(0.05)  # as long as a program takes to start
        children = [daemon.serve_from_a_child("server")]
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
