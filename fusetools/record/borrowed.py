"""A running perf's events, switched on and off without perf.

perf looks at its control FIFO only where a round of reading has brought nothing, which while
events pour in may be long after (tools/perf/builtin-record.c, __cmd_record). pidfd_getfd(2) is
there since Linux 5.6.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
from collections.abc import Iterable
from pathlib import Path

PIDFD_OPEN, PIDFD_GETFD = 434, 438  # of each architecture
ENABLE, DISABLE, ID = 0x2400, 0x2401, 0x80082407  # ioctls of perf_event_open(2)
TRACEPOINT = 2
MOST = 1 << 20  # bytes of the events' attributes in a header


class Borrowed:
    """Events of tracepoints, on each CPU. OSError: one of them cannot be borrowed."""

    def __init__(self, pid: int, recording: Path, tracepoints: Iterable[int]) -> None:
        wanted = ids(recording, set(tracepoints))
        self._descriptors: list[int] = []
        libc = ctypes.CDLL(None, use_errno=True)
        process = _call(libc, PIDFD_OPEN, pid, 0)
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                if os.readlink(entry.path) == "anon_inode:[perf_event]":
                    found = _call(libc, PIDFD_GETFD, process, int(entry.name), 0)
                    self._descriptors.append(found)
                    number = struct.unpack("=Q", fcntl.ioctl(found, ID, bytes(8)))[0]
                    if number not in wanted:
                        os.close(self._descriptors.pop())
            if not wanted or len(self._descriptors) != len(wanted):
                raise FileNotFoundError("not all of perf's events are there")
        except BaseException:
            self.close()
            raise
        finally:
            os.close(process)

    def switch(self, on: bool) -> None:
        for descriptor in self._descriptors:
            fcntl.ioctl(descriptor, ENABLE if on else DISABLE, 0)

    def close(self) -> None:
        """An event that is still held here outlives perf."""
        for descriptor in self._descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._descriptors = []


def ids(recording: Path, tracepoints: set[int]) -> set[int]:
    """The kernel's numbers of these tracepoints' events, one for each CPU, by the header that perf
    writes before it begins (tools/perf/Documentation/perf.data-file-format.txt). OSError."""
    found: set[int] = set()
    with recording.open("rb") as file:
        head = file.read(40)
        if len(head) < 40 or head[:8] != b"PERFILE2":
            raise OSError(f"{recording} has no header yet")
        size, at, length = struct.unpack_from("=QQQ", head, 16)
        if not 48 <= size <= length <= MOST:
            raise OSError(f"{recording} has another header")
        for number in range(length // size):
            file.seek(at + number * size)
            attr = file.read(size)
            kind, _, config = struct.unpack_from("=IIQ", attr)
            start, bytes_ = struct.unpack_from("=QQ", attr, size - 16)
            if kind == TRACEPOINT and config in tracepoints and bytes_ <= MOST:
                file.seek(start)
                found.update(struct.unpack(f"={bytes_ // 8}Q", file.read(bytes_ // 8 * 8)))
    return found


def _call(libc: ctypes.CDLL, number: int, *arguments: int) -> int:
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
