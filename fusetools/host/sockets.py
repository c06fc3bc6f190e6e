"""Internet sockets of a process: peers, states, queues and other ends.

Sources: proc_net(5), Documentation/networking/proc_net_tcp.rst.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import struct
import sys
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from fusetools.host.files import bounded

# include/net/tcp_states.h
STATES = (
    "", "ESTABLISHED", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "CLOSE",
    "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING",
)  # fmt: skip
LISTEN = 10
MOST_ROWS = 200_000
MOST_SOCKETS = 256  # limit of a process's sockets whose peers are looked up
MOST_DESCRIPTORS = 10_000  # limit of a table's rows among which they are searched
Fields = tuple[str, str, str, int, int, bool]  # fields of a Socket except its other end


def of_process(pid: int) -> dict[int, int]:
    """Return a process's sockets: descriptor -> inode; only some if there are very many."""
    found: dict[int, int] = {}
    try:
        for entry in islice(os.scandir(f"/proc/{pid}/fd"), MOST_DESCRIPTORS):
            link = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry.path))
            if link:
                found[int(entry.name)] = int(link[1])
            if len(found) == MOST_SOCKETS:
                break
    except OSError:
        pass  # the process has ended
    return found


def peers(pid: int, wanted: Collection[int]) -> dict[int, str]:
    """Return the peer of each socket by inode, as seen from that process's network namespace.

    A peer is "192.0.2.1:3128" or "[2001:db8::1]:80". A table that cannot be read in time
    contributes nothing.
    """

    def look() -> str:
        rows = internet(f"/proc/{pid}", wanted)
        return json.dumps([(inode, fields[1]) for inode, fields, _ in rows if fields[1]])

    return dict(json.loads(bounded(look, 2.0) or "[]")) if wanted else {}


def internet(place: str, wanted: Collection[int]) -> list[tuple[int, Fields, list[int]]]:
    """Yield (inode, fields of a Socket, inodes of the other end and of the listener) of the
    ``wanted`` sockets.

    The sockets are those in the network of the process or thread whose directory in /proc is
    ``place``.
    """
    ends: dict[tuple[str, str], int] = {}
    listening: dict[str, int] = {}
    rows = []
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        name = protocol.rstrip("6")
        for local, remote, state, queues, inode in _rows(place, protocol):
            if name == "tcp":
                ends[_mapped(local), _mapped(remote)] = inode
                if state == LISTEN:
                    listening[_mapped(local)] = inode
            if inode in wanted:
                rows.append((name, local, remote, state, queues, inode))
    sockets = []
    for name, local, remote, state, queues, inode in rows:
        sent, received = (int(part, 16) for part in queues.split(":"))
        known = STATES[state] if name == "tcp" and state < len(STATES) else ""
        others: list[int] = []
        other = None
        if name == "tcp" and state != LISTEN:
            there = _mapped(remote)
            other = ends.get((there, _mapped(local)))
            places = [there]
            if other is not None or _ip(remote).is_loopback:  # the address is one of this host
                port = there.rpartition(":")[2]
                places += [f"{'0' * 8}:{port}", f"{'0' * 32}:{port}"]
            others = [other or 0, *(listening.get(address, 0) for address in places)]
        fields = (name, _address(remote), known, sent, received, other != 0)
        sockets.append((inode, fields, [number for number in others if number]))
    return sockets


def lines(place: str, protocol: str) -> Iterator[str]:
    """Return the first MOST_ROWS lines of a table without its header; none if it cannot be read."""
    try:
        with Path(f"{place}/net/{protocol}").open(encoding="utf-8", errors="replace") as lines:
            yield from islice(lines, 1, 1 + MOST_ROWS)
    except OSError:
        return


def _rows(place: str, protocol: str) -> Iterator[tuple[str, str, int, str, int]]:
    for line in lines(place, protocol):
        fields = line.split()
        if len(fields) > 9 and fields[9].isdecimal():
            yield fields[1], fields[2], int(fields[3], 16), fields[4], int(fields[9])


def _mapped(address: str) -> str:
    """Return an IPv4 address that is written as an IPv6 one in IPv4 form."""
    prefix = "0000000000000000FFFF0000" if sys.byteorder == "little" else f"{'0' * 20}FFFF"
    return address[24:] if len(address) > 32 and address.startswith(prefix) else address


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return 127.0.0.1 for "0100007F:0C38": words of 32 bits in the machine's byte order."""
    host = _mapped(text).partition(":")[0]
    words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
    return ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))


def _address(text: str) -> str:
    """Return the address with its port; "" without a port."""
    address, number = _ip(text), int(text.partition(":")[2], 16)
    if not number:
        return ""
    return f"{address}:{number}" if address.version == 4 else f"[{address}]:{number}"
