"""Sockets and their other ends, including unix sockets. Sources: proc_net(5), sock_diag(7)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import struct
import time
from collections.abc import Iterator

from fusetools.host.sockets import LISTEN, STATES, Fields, internet, lines
from fusetools.stuck.moment import Socket

__all__ = ["Socket", "read"]


def read(
    place: str, own: bool, wanted: dict[int, str]
) -> tuple[list[tuple[int, Fields, list[int]]], str]:
    """Return the ``wanted`` sockets in a network namespace, and why other ends of unix sockets are
    unknown.

    Each socket is (inode, fields of a Socket, inodes of the other end and of the listener). The
    namespace is that of the thread whose directory in /proc is ``place``. ``wanted`` has the path
    that a unix socket connects to, if it does. The reason is "" if the other ends are known, or if
    there are none. For a child, which enters the namespace unless it is ours (``own``).
    """
    sockets = internet(place, wanted)
    paths: dict[int, str] = {}
    servers: dict[str, int] = {}
    listening = set()
    for inode, listens, path in _unix(place):
        if inode:  # a socket that is not accepted yet has none
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
        state = STATES[LISTEN] if inode in listening else ""
        fields = ("unix", path, state, 0, 0, inode not in pending)
        sockets.append((inode, fields, others))
    return sockets, why


def listening(place: str) -> list[tuple[int, str]]:
    """Return (inode, path) of the unix sockets that listen in a process's network namespace.

    The process or thread is given by its directory in /proc.
    """
    return [(inode, path) for inode, listens, path in _unix(place) if listens and path]


def _unix(place: str) -> Iterator[tuple[int, bool, str]]:
    """Yield (inode, whether it listens, path) of each unix socket."""
    for line in lines(place, "unix"):
        # A path may hold newlines: text after them is no row.
        row = re.match(r"\w+: \w+ \w+ ([0-9A-F]{8}) \w+ \w+ +(\d+)(?: (.*))?$", line)
        if row:
            yield int(row[2]), bool(int(row[1], 16) & _SO_ACCEPTCON), row[3] or ""


def _enter(namespace: str) -> bool:
    """Return whether this process has entered a network namespace."""
    try:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return int(ctypes.CDLL(None).setns(descriptor, _CLONE_NEWNET)) == 0
    finally:
        os.close(descriptor)


def silence(place: str, own: bool, wanted: list[int]) -> list[tuple[int, float, float]]:
    """Return (inode, time.monotonic() of the last sent and of the last received data) of TCP
    connections. Data that is sent again counts as sent.

    The network namespace is that of the thread whose directory in /proc is ``place``. For a child,
    as read().
    """
    if not (own or _enter(f"{place}/ns/net")):
        return []
    found: list[tuple[int, float, float]] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, _INFO_WANTED, 0, _STATES)
        for message in _dump(request) or ():
            if len(message) < _DIAG_SIZE:
                continue
            (inode,) = struct.unpack_from("=I", message, _DIAG_SIZE - 4)
            info = dict(_parts(message[_DIAG_SIZE:])).get(_INFO, b"") if inode in wanted else b""
            if len(info) >= _LAST_RECEIVED + 4:
                sent, received = (
                    struct.unpack_from("=I", info, at)[0] for at in (_LAST_SENT, _LAST_RECEIVED)
                )
                now = time.monotonic()
                found.append((inode, now - sent / 1e3, now - received / 1e3))
    return found


# include/uapi/linux/inet_diag.h, tcp.h: ESTABLISHED and CLOSE_WAIT; struct inet_diag_msg ends with
# the inode; the offsets of tcpi_last_data_sent and tcpi_last_data_recv.
_INFO, _INFO_WANTED, _STATES, _DIAG_SIZE = 2, 2, 1 << 1 | 1 << 8, 72
_LAST_SENT, _LAST_RECEIVED = 44, 52
_SO_ACCEPTCON, _CLONE_NEWNET = 1 << 16, 1 << 30
_SOCK_DIAG_BY_FAMILY, _DUMP = 20, 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_UDIAG_SHOW_PEER, _UDIAG_SHOW_ICONS = 4, 8
_UNIX_DIAG_PEER, _UNIX_DIAG_ICONS, _NLMSG_DONE, _NLMSG_ERROR = 2, 3, 3, 2
_NETLINK_SOCK_DIAG = 4


def _unix_ends() -> tuple[dict[int, int], dict[int, int]] | None:
    """Return the peer and the listener of unix sockets in our network namespace, by inode.

    A listener is known for connections that are not accepted yet. Return None if the kernel does
    not report them (no module unix_diag).
    """
    peers: dict[int, int] = {}
    pending: dict[int, int] = {}
    show = _UDIAG_SHOW_PEER | _UDIAG_SHOW_ICONS
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, show, 0, 0)
    messages = _dump(request)
    if messages is None:
        return None
    for message in messages:
        for inode, attribute, others in _attributes(message):
            if attribute == _UNIX_DIAG_PEER and others:
                peers[inode] = others[0]
            elif attribute == _UNIX_DIAG_ICONS:
                pending.update((other, inode) for other in others)
    return peers, pending


def _dump(request: bytes) -> list[bytes] | None:
    """Return the messages about all sockets that sock_diag(7) is asked for.

    Return None if the kernel does not report them.
    """
    messages: list[bytes] = []
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
                    return messages
                if kind == _NLMSG_ERROR or size < 16:
                    return None
                messages.append(data[16:size])
                data = data[(size + 3) & ~3 :]
    return None


def _attributes(message: bytes) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (inode, attribute, its words) of a message about one unix socket."""
    if len(message) < 16:
        return
    (inode,) = struct.unpack_from("=I", message, 4)
    for kind, data in _parts(message[16:]):
        yield inode, kind, struct.unpack(f"={len(data) // 4}I", data[: len(data) // 4 * 4])


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (kind, value) of netlink's attributes."""
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4:
            return
        yield kind, data[at + 4 : at + size]
        at += (size + 3) & ~3
