"""Status of a CernVM-FS client, from its command socket (cvmfs_talk): proxies, hosts, timeouts,
cache.

For a child with a time limit: a client that hangs does not answer. Source: CernVM-FS's
cvmfs/talk.cc.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket

from fusetools.host.rights import drop_to
from fusetools.stuck.children import link, names, text
from fusetools.stuck.sockets import listening

COMMANDS = ("proxy info", "host info", "timeout info", "cache size", "parameters")
LIMIT = re.compile(r"^CVMFS_QUOTA_LIMIT=.*", re.MULTILINE)  # cache size of all parameters, in MB
LONGEST = 64 << 10  # limit in bytes of an answer
MOST_LINES, WIDEST = 12, 200
PATIENCE = 0.1  # timeout in seconds for one answer


def ask(pid: int) -> tuple[int, list[tuple[str, str]]]:
    """Return (process, (command, answer) of each command that it answers).

    The socket is in the client's mount namespace. Connect with the client's own rights: the
    socket's path may lead anywhere.
    """
    place = f"/proc/{pid}"
    own = {link(f"{place}/fd/{number}") for number in names(f"{place}/fd")}
    paths = [
        path
        for inode, path in listening(place)
        if f"socket:[{inode}]" in own and path.rpartition("/")[2].startswith("cvmfs_io.")
    ]
    ids = re.findall(r"^[UG]id:\s*\d+\s+(\d+)", text(f"{place}/status"), re.MULTILINE)
    if not paths or len(ids) != 2:
        return pid, []
    root = os.open(f"{place}/root", os.O_PATH | os.O_DIRECTORY)
    drop_to(*map(int, ids))
    directory, _, name = paths[0].rpartition("/")
    flags = os.O_PATH | os.O_DIRECTORY
    folder = os.open(directory.lstrip("/") or ".", flags, dir_fd=root)
    answers = []
    for command in COMMANDS:
        answer = _answer(f"/proc/self/fd/{folder}/{name}", command)
        if command == "parameters":
            answer = "\n".join(LIMIT.findall(answer))
        if answer.strip() and not answer.lower().startswith("unknown command"):
            lines = [line[:WIDEST].rstrip() for line in answer.strip().splitlines()[:MOST_LINES]]
            answers.append((command, "\n".join(lines)))
    return pid, answers


def _answer(path: str, command: str) -> str:
    data = b""
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk,
    ):
        talk.settimeout(PATIENCE)
        talk.connect(path)
        talk.sendall(command.encode())
        talk.shutdown(socket.SHUT_WR)
        while len(data) < LONGEST and (part := talk.recv(1 << 14)):
            data += part
    return data.decode("utf-8", "replace")
