"""A daemon like rawfs.py with wrong answers; it logs each request as a JSON line.

`answerfs.py MOUNT --refuse KIND`: the kernel refuses the first answer to GETATTR of a file (KIND:
"negative" and "positive", an error out of range; "gone", a number that no request has). `--content
KIND`: attributes that the kernel refuses ("type", "size"). `--drop N`: every Nth GETATTR of a file
is read and never answered. `--resend`: the first GETATTR of a file is, until the kernel sends it
again 1 s later (FUSE_NOTIFY_RESEND). `--child`: a child serves while this process holds the device.
`--workers N`: as in rawfs.py; INTERRUPTs are logged, and obeyed with `--obey`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import sys
import threading

import rawfs

GETATTR, LOOKUP, INIT, INTERRUPT = 3, 1, 26, 36
EINTR = 4
INIT_EXT, HAS_RESEND = 1 << 30, 1 << 7  # HAS_RESEND: in flags2
RESEND = 7
ERRORS = {"negative": -512, "positive": 5, "gone": 0}


def log(**line: object) -> None:
    os.write(1, f"{json.dumps(line)}\n".encode())  # several threads print at the same time


class Daemon(rawfs.Daemon):
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.asked, self.refused = given, 0, 0
        self.interrupted: dict[int, threading.Event] = {}
        super().__init__(given.mount, given.workers, given.delay)

    def answer(self, request: bytes) -> None:
        _, opcode, unique, nodeid, *_ = rawfs.IN_HEADER.unpack_from(request)
        if opcode == INTERRUPT:
            (about,) = struct.unpack_from("<Q", request, rawfs.IN_HEADER.size)
            if self.given.obey and about in self.interrupted:
                self.interrupted[about].set()
            return log(interrupt=about)
        if opcode == LOOKUP and self.given.obey:
            event = self.interrupted[unique] = threading.Event()
            if event.wait(self.delay):
                os.write(self.fd, rawfs.OUT_HEADER.pack(16, -EINTR, unique))
                return None
        if opcode == GETATTR and nodeid != 1:
            self.asked += 1
            if self.given.drop and self.asked % self.given.drop == 0:
                return log(dropped=unique)
            if self.given.resend and self.asked == 1:
                threading.Timer(1, self.resend).start()
                return log(dropped=unique)
            if self.given.refuse and not self.refused:
                self.refused = unique
                return self.refuse(unique, ERRORS[self.given.refuse])
        return super().answer(request)

    def resend(self) -> None:
        os.write(self.fd, rawfs.OUT_HEADER.pack(16, RESEND, 0))

    def refuse(self, unique: int, error: int) -> None:
        number = unique if error else unique + (1 << 30)
        try:
            os.write(self.fd, rawfs.OUT_HEADER.pack(16, error, number))
        except OSError as failed:
            log(refused=unique, errno=failed.errno)

    def handle(self, opcode: int, nodeid: int, body: bytes) -> tuple[int, bytes]:
        error, answer = super().handle(opcode, nodeid, body)
        if opcode == INIT and self.given.resend:
            flags = struct.pack("<I", struct.unpack_from("<I", answer, 12)[0] | INIT_EXT)
            answer = (
                answer[:12] + flags + answer[16:32] + struct.pack("<I", HAS_RESEND) + answer[36:]
            )
        if opcode == LOOKUP and self.given.content and not error:
            inode = struct.unpack_from("<Q", answer)[0]
            size = 1 << 63 if self.given.content == "size" else 0
            mode = 0o777 if self.given.content == "type" else rawfs.FILE
            bad = rawfs.ATTR.pack(inode, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
            answer = answer[: -rawfs.ATTR.size] + bad
        return error, answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mount")
    parser.add_argument("--refuse", choices=ERRORS)
    parser.add_argument("--content", choices=("type", "size"))
    parser.add_argument("--drop", type=int, default=0)
    parser.add_argument("--resend", action="store_true")
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--obey", action="store_true")
    daemon = Daemon(parser.parse_args())
    daemon.answer(os.read(daemon.fd, 1 << 17))  # INIT
    child = os.fork() if daemon.given.child else 0
    if child:

        def end(*_: object) -> None:
            os.kill(child, signal.SIGKILL)
            sys.exit()

        signal.signal(signal.SIGTERM, end)
        while True:
            signal.pause()
    log(ready=os.getpid())
    daemon.run()


if __name__ == "__main__":
    main()
