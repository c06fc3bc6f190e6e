"""The age of a process to the microsecond: /proc shows 10 ms.

Source: Documentation/accounting/taskstats.rst, include/uapi/linux/taskstats.h.
"""

from __future__ import annotations

import socket
import struct
import time

_GENERIC, _CTRL, _GET_FAMILY, _GET = 16, 16, 3, 1
_FAMILY_ID, _FAMILY_NAME, _PID, _STATS, _AGGREGATE = 1, 2, 1, 3, 4
_ELAPSED = 144  # offset of ac_etime in struct taskstats
_PATIENCE = 0.1  # timeout in seconds
_TIMES = 3


def began(pids: list[int]) -> list[tuple[int, float]]:
    """Return (process, time.monotonic() at which it began) of those that the kernel reports.

    It reports them to root in the first user namespace.
    """
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC) as link:
            link.settimeout(_PATIENCE)
            family = _attributes(_ask(link, _CTRL, _GET_FAMILY, _FAMILY_NAME, b"TASKSTATS\0"))
            number = struct.unpack("=H", family[_FAMILY_ID][:2])[0]
            asked = {pid: [_began(link, number, pid) for _ in range(_TIMES)] for pid in pids}
            # The largest is the closest: it waited least between the two clocks.
            return [(pid, max(found)[0]) for pid, found in asked.items() if all(found)]
    except (OSError, KeyError, struct.error):
        return []


def _began(link: socket.socket, family: int, pid: int) -> list[float]:
    now = time.monotonic()  # before the kernel counts: no process appears younger than it is
    answer = _attributes(_ask(link, family, _GET, _PID, struct.pack("=I", pid)))
    stats = _attributes(answer.get(_AGGREGATE, b"")).get(_STATS, b"")
    if len(stats) < _ELAPSED + 8:
        return []
    return [now - struct.unpack_from("=Q", stats, _ELAPSED)[0] / 1e6]


def _ask(link: socket.socket, family: int, command: int, kind: int, value: bytes) -> bytes:
    """Return the attributes in the answer to a command with one attribute."""
    size = 4 + len(value)
    body = struct.pack("=BBHHH", command, 1, 0, size, kind) + value + bytes(-size % 4)
    link.send(struct.pack("=IHHII", 16 + len(body), family, 1, 1, 0) + body)
    return link.recv(1 << 16)[20:]


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4:
            break
        found[kind] = data[at + 4 : at + size]
        at += (size + 3) & ~3
    return found
