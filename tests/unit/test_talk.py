"""The status of a CernVM-FS client, on its command socket."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusetools.render.text.stuck import render
from fusetools.results.stuck import Stuck, StuckMount, Told
from fusetools.stuck import bounded, talk

ANSWERS = {
    "proxy info": "Load-balance groups:\n[0] http://10.0.0.1:3128\nActive proxy: [0] http://10.0.0.1:3128\n",
    "host info": "unknown command\n",
    "timeout info": "Timeout with proxy: 5s\nTimeout without proxy: 10s\n",
    "cache size": "Current cache size is 3995MB (4189061120 Bytes), pinned: 2MB (2097152 Bytes)\n",
    "parameters": "CVMFS_CACHE_BASE=/x\nCVMFS_QUOTA_LIMIT=4000    # from /etc/cvmfs\nCVMFS_X=1\n",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[socket.socket]:
    """A command socket of this process; nobody answers on it yet."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "cvmfs_io.x"))
        listener.listen(8)
        yield listener


def asked() -> list[tuple[str, str]]:
    """Return this process's answer, requested by a child."""
    ((_, rows),) = bounded.each([os.getpid()], talk.ask, 5, bounded.Limit(10))
    assert rows is not None
    return [(command, text) for command, text in rows[1]]


def serve(listener: socket.socket) -> None:
    for _ in talk.COMMANDS:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(ANSWERS[connection.recv(256).decode()].encode())


def test_a_client_says_what_it_uses(client: socket.socket) -> None:
    thread = threading.Thread(target=serve, args=[client])
    thread.start()
    told = asked()
    thread.join()
    assert [command for command, _ in told] == [
        "proxy info",
        "timeout info",
        "cache size",
        "parameters",
    ]
    assert told[0][1].splitlines()[-1] == "Active proxy: [0] http://10.0.0.1:3128"
    assert told[3][1].startswith("CVMFS_QUOTA_LIMIT=4000")


def test_a_client_that_does_not_answer_takes_little_time(client: socket.socket) -> None:
    begin = time.monotonic()
    assert asked() == []
    assert time.monotonic() - begin < 4


def test_no_client_is_asked_nothing() -> None:
    assert asked() == []


def test_a_clients_text_has_no_escapes() -> None:
    mount = StuckMount("/mnt", "fuse", "x", 1, "stuck", client=(Told("host info", "a\x1b[2J"),))
    text = render(Stuck("6.1", (mount,)))
    assert "The client says:" in text and "\x1b" not in text
