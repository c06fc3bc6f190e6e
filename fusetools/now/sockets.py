"""Sockets of a process: peers, states, queues, and other ends.

Sources: proc_net(5), Documentation/networking/proc_net_tcp.rst, sock_diag(7).
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from fusetools.now.moment import Socket

__all__ = ["Socket", "read"]

# include/net/tcp_states.h
_STATES = (
    "", "ESTABLISHED", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "CLOSE",
    "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING",
)  # fmt: skip
MOST_ROWS = 200_000
Fields = tuple[str, str, str, int, int]  # of a Socket, up to its queues


def read(pid: int, own: bool, wanted: set[int]) -> list[tuple[int, Fields, int]]:
    """(inode, a Socket's fields, inode of the other end or 0) of the ``wanted`` sockets in the
    network namespace of ``pid``; ``own``: it is ours."""
    by_inode: dict[int, tuple[Fields, int]] = {}
    ends: dict[tuple[str, str], int] = {}
    rows = []
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for local, remote, state, queues, inode in _rows(pid, protocol):
            name = protocol.rstrip("6")
            if name == "tcp":
                ends[local, remote] = inode
            if inode in wanted:
                rows.append((name, local, remote, state, queues, inode))
    for name, local, remote, state, queues, inode in rows:
        sent, received = (int(part, 16) for part in queues.split(":"))
        known = _STATES[state] if name == "tcp" and state < len(_STATES) else ""
        fields = (name, _address(remote), known, sent, received)
        by_inode[inode] = (fields, ends.get((remote, local), 0) if name == "tcp" else 0)
    paths = dict(_unix(pid))
    names = {inode: path for inode, path in paths.items() if inode in wanted}
    peers = dict(_unix_peers()) if own and names else {}
    for inode, path in names.items():
        other = peers.get(inode, 0)
        by_inode[inode] = (("unix", paths.get(other, "") or path, "", 0, 0), other)
    return [(inode, *row) for inode, row in by_inode.items()]


def _lines(pid: int, protocol: str) -> Iterator[str]:
    """The first MOST_ROWS lines of a table, without its head; none if it cannot be read."""
    try:
        with Path(f"/proc/{pid}/net/{protocol}").open(encoding="utf-8", errors="replace") as lines:
            yield from islice(lines, 1, 1 + MOST_ROWS)
    except OSError:
        return


def _rows(pid: int, protocol: str) -> Iterator[tuple[str, str, int, str, int]]:
    for line in _lines(pid, protocol):
        fields = line.split()
        if len(fields) > 9 and fields[9].isdecimal():
            yield fields[1], fields[2], int(fields[3], 16), fields[4], int(fields[9])


def _address(text: str) -> str:
    """ "0100007F:0C38" as 127.0.0.1:3128: words of 32 bits in the machine's order."""
    host, _, port = text.partition(":")
    words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    number = int(port, 16)
    if not number:
        return ""
    return f"{address}:{number}" if address.version == 4 else f"[{address}]:{number}"


def _unix(pid: int) -> Iterator[tuple[int, str]]:
    for line in _lines(pid, "unix"):
        fields = line.rstrip("\n").split(None, 7)
        if len(fields) > 6 and fields[6].isdecimal():
            yield int(fields[6]), fields[7] if len(fields) > 7 else ""


_SOCK_DIAG_BY_FAMILY, _DUMP = 20, 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_UDIAG_SHOW_PEER, _UNIX_DIAG_PEER, _NLMSG_DONE, _NLMSG_ERROR = 4, 2, 3, 2
_NETLINK_SOCK_DIAG = 4


def _unix_peers() -> Iterator[tuple[int, int]]:
    """(inode, inode of its peer) of the unix sockets of our network namespace."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _UDIAG_SHOW_PEER, 0, 0)
    head = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
            link.send(head + request)
            while True:
                data = link.recv(1 << 16)
                while len(data) >= 16:
                    size, kind = struct.unpack_from("=IH", data)
                    if kind in (_NLMSG_DONE, _NLMSG_ERROR) or size < 16:
                        return
                    yield from _peer(data[16:size])
                    data = data[(size + 3) & ~3 :]
    except OSError:
        return


def _peer(message: bytes) -> Iterator[tuple[int, int]]:
    if len(message) < 16:
        return
    (inode,) = struct.unpack_from("=I", message, 4)
    at = 16
    while at + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if size < 4:
            return
        if kind == _UNIX_DIAG_PEER and size >= 8:
            yield inode, struct.unpack_from("=I", message, at + 4)[0]
        at += (size + 3) & ~3
