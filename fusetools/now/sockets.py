"""Sockets of a process: peers, states, queues, and other ends.

Sources: proc_net(5), Documentation/networking/proc_net_tcp.rst, sock_diag(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import re
import socket
import struct
import sys
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from fusetools.now.moment import Socket

__all__ = ["Socket", "read"]

# include/net/tcp_states.h
_STATES = (
    "", "ESTABLISHED", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "CLOSE",
    "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING",
)  # fmt: skip
_LISTEN = 10
MOST_ROWS = 200_000
Fields = tuple[str, str, str, int, int, bool]  # of a Socket, without its other end


def read(
    place: str, own: bool, wanted: dict[int, str]
) -> tuple[list[tuple[int, Fields, list[int]]], str]:
    """(inode, a Socket's fields, inodes of the other end and of the socket that listens there) of
    the ``wanted`` sockets in the network namespace of the thread whose directory in /proc is
    ``place``; ``wanted`` has the path that a unix socket connects to, if it does. And why the other
    ends of unix sockets are not known; "" if they are, or there are none. For a child, which enters
    the namespace unless it is ours (``own``)."""
    sockets = _internet(place, wanted)
    paths: dict[int, str] = {}
    servers: dict[str, int] = {}
    listening = set()
    for inode, listens, path in _unix(place):
        if inode:  # one that is not accepted yet has none
            paths[inode] = path
        if listens:
            listening.add(inode)
        if listens and path:
            servers[path] = inode
    unix = wanted.keys() & paths.keys()
    ends: dict[int, int] = {}
    pending: dict[int, int] = {}
    why = ""
    if unix and not (own or _enter(f"{place}/ns/net")):
        why = "its network namespace cannot be entered"
    elif unix:
        told = _unix_ends()
        ends, pending = told or (ends, pending)
        why = "" if told else "the kernel does not tell; fix: modprobe unix_diag"
    for inode in unix:
        others = [ends.get(inode, 0), pending.get(inode, 0), servers.get(wanted[inode], 0)]
        others = [other for other in others if other and other != inode]
        path = next((paths[other] for other in others if paths.get(other)), "")
        path = path or wanted[inode] or paths[inode]
        state = _STATES[_LISTEN] if inode in listening else ""
        fields = ("unix", path, state, 0, 0, inode not in pending)
        sockets.append((inode, fields, others))
    return sockets, why


def _internet(place: str, wanted: Collection[int]) -> list[tuple[int, Fields, list[int]]]:
    ends: dict[tuple[str, str], int] = {}
    listening: dict[str, int] = {}
    rows = []
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        name = protocol.rstrip("6")
        for local, remote, state, queues, inode in _rows(place, protocol):
            if name == "tcp":
                ends[_mapped(local), _mapped(remote)] = inode
                if state == _LISTEN:
                    listening[_mapped(local)] = inode
            if inode in wanted:
                rows.append((name, local, remote, state, queues, inode))
    sockets = []
    for name, local, remote, state, queues, inode in rows:
        sent, received = (int(part, 16) for part in queues.split(":"))
        known = _STATES[state] if name == "tcp" and state < len(_STATES) else ""
        others: list[int] = []
        other = None
        if name == "tcp" and state != _LISTEN:
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


def _lines(place: str, protocol: str) -> Iterator[str]:
    """The first MOST_ROWS lines of a table, without its head; none if it cannot be read."""
    try:
        with Path(f"{place}/net/{protocol}").open(encoding="utf-8", errors="replace") as lines:
            yield from islice(lines, 1, 1 + MOST_ROWS)
    except OSError:
        return


def _rows(place: str, protocol: str) -> Iterator[tuple[str, str, int, str, int]]:
    for line in _lines(place, protocol):
        fields = line.split()
        if len(fields) > 9 and fields[9].isdecimal():
            yield fields[1], fields[2], int(fields[3], 16), fields[4], int(fields[9])


def _mapped(address: str) -> str:
    """An address of IPv4 that is written as one of IPv6, as one of IPv4."""
    prefix = "0000000000000000FFFF0000" if sys.byteorder == "little" else f"{'0' * 20}FFFF"
    return address[24:] if len(address) > 32 and address.startswith(prefix) else address


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Of "0100007F:0C38" 127.0.0.1: words of 32 bits in the machine's order."""
    host = _mapped(text).partition(":")[0]
    words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
    return ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))


def _address(text: str) -> str:
    """With its port; "" without one."""
    address, number = _ip(text), int(text.partition(":")[2], 16)
    if not number:
        return ""
    return f"{address}:{number}" if address.version == 4 else f"[{address}]:{number}"


def _unix(place: str) -> Iterator[tuple[int, bool, str]]:
    """(inode, whether it listens, path) of each unix socket."""
    for line in _lines(place, "unix"):
        # A path may hold newlines: what follows them is no row.
        row = re.match(r"\w+: \w+ \w+ ([0-9A-F]{8}) \w+ \w+ +(\d+)(?: (.*))?$", line)
        if row:
            yield int(row[2]), bool(int(row[1], 16) & _SO_ACCEPTCON), row[3] or ""


def _enter(namespace: str) -> bool:
    """Whether this process is in a network namespace now."""
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return int(ctypes.CDLL(None).setns(descriptor, _CLONE_NEWNET)) == 0
    finally:
        os.close(descriptor)


_SO_ACCEPTCON, _CLONE_NEWNET = 1 << 16, 1 << 30
_SOCK_DIAG_BY_FAMILY, _DUMP = 20, 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_UDIAG_SHOW_PEER, _UDIAG_SHOW_ICONS = 4, 8
_UNIX_DIAG_PEER, _UNIX_DIAG_ICONS, _NLMSG_DONE, _NLMSG_ERROR = 2, 3, 3, 2
_NETLINK_SOCK_DIAG = 4


def _unix_ends() -> tuple[dict[int, int], dict[int, int]] | None:
    """By inode of the unix sockets of our network namespace: the peer's; and the listener's, of
    those that it has not accepted yet. None: the kernel does not tell (no module unix_diag)."""
    peers: dict[int, int] = {}
    pending: dict[int, int] = {}
    show = _UDIAG_SHOW_PEER | _UDIAG_SHOW_ICONS
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, show, 0, 0)
    head = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 1, 0)
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link,
    ):
        link.send(head + request)
        while True:
            data = link.recv(1 << 16)
            while len(data) >= 16:
                size, kind = struct.unpack_from("=IH", data)
                if kind == _NLMSG_DONE:
                    return peers, pending
                if kind == _NLMSG_ERROR or size < 16:
                    return None
                for inode, attribute, others in _attributes(data[16:size]):
                    if attribute == _UNIX_DIAG_PEER and others:
                        peers[inode] = others[0]
                    elif attribute == _UNIX_DIAG_ICONS:
                        pending.update((other, inode) for other in others)
                data = data[(size + 3) & ~3 :]
    return None


def _attributes(message: bytes) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(inode, attribute, its words) of a message about one socket."""
    if len(message) < 16:
        return
    (inode,) = struct.unpack_from("=I", message, 4)
    at = 16
    while at + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if size < 4:
            return
        data = message[at + 4 : at + size]
        yield inode, kind, struct.unpack(f"={len(data) // 4}I", data[: len(data) // 4 * 4])
        at += (size + 3) & ~3
