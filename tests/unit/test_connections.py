"""Long-lived connections and files of a daemon, by its descriptors, before and after."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from fusetools import session
from fusetools.host import sockets
from fusetools.host.files import Files
from fusetools.host.mounts import OpenFile, files_of
from fusetools.host.processes import started
from fusetools.record.daemons import Daemons
from fusetools.session import File, Peer, Session


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1:{}"),
        (socket.AF_INET6, "::1", "[::1]:{}"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1:{}"),
    ],
)
def test_peers_of_descriptors(family: socket.AddressFamily, host: str, shown: str) -> None:
    with socket.socket(family) as server:
        try:
            server.bind((host, 0))
        except OSError as error:
            pytest.skip(f"{host}: {error}")
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection((host, port)) as ours:
            found = sockets.of_process(os.getpid())
            assert found[ours.fileno()] == os.fstat(ours.fileno()).st_ino
            inodes = {found[it.fileno()] for it in (ours, server)}
            # A listening socket has no peer.
            expected = {found[ours.fileno()]: shown.format(port)}
            assert sockets.peers(os.getpid(), inodes) == expected


def connected(before: dict[int, int], start: int | None) -> tuple[Peer, ...]:
    pid = os.getpid()
    daemons = object.__new__(Daemons)
    daemons.sockets, daemons.started = {pid: before}, {pid: start}
    return tuple(daemons.peers())


def test_a_descriptor_that_is_another_socket_now_is_not_told() -> None:
    pid = os.getpid()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as one, socket.create_connection(address) as other:
            before = sockets.of_process(pid)
            number = one.fileno()
            os.dup2(other.fileno(), number)
            told = {peer.fd: peer.address for peer in connected(before, started(pid))}
            assert told == {other.fileno(): f"127.0.0.1:{address[1]}"}
            # Another process has that number now.
            assert connected(before, (started(pid) or 0) + 1) == ()
            assert connected({}, started(pid)) == ()


def test_connections_in_a_recording_are_untrusted() -> None:
    rows = [
        {"pid": 7, "fd": 4, "address": "192.0.2.1:80"},
        {"pid": 7, "fd": 5, "address": "[2001:db8::1]:80"},
        {"pid": 7, "fd": -1, "address": "192.0.2.1:80"},
        {"pid": "7", "fd": 4, "address": "192.0.2.1:80"},
        {"pid": 7, "fd": 4, "address": "\x1b[31m"},
        {"pid": 7, "fd": 4, "address": ["192.0.2.1:80"]},
        {"pid": 7, "fd": 4, "address": "1" * 100},
        {},
        "x",
    ]
    found, warnings = session.read(json.dumps({"format": 1, "peers": rows}))
    assert found.peers == (Peer(7, 4, "192.0.2.1:80"), Peer(7, 5, "[2001:db8::1]:80"))
    assert not warnings
    assert session.read(json.dumps({"format": 1, "peers": 7}))[0].peers == ()
    again, _ = session.read(json.dumps(Session(peers=found.peers).to_json()))
    assert again.peers == found.peers


def files_now(before: dict[int, OpenFile], start: int | None) -> dict[int, File]:
    pid = os.getpid()
    daemons = object.__new__(Daemons)
    daemons.opened, daemons.started = {pid: before}, {pid: start}
    return {file.fd: file for file in daemons.files()}


def test_a_file_has_its_mount_and_device(tmp_path: Path) -> None:
    pid, path = os.getpid(), tmp_path / "a b"
    with (
        path.open("w") as one,
        (tmp_path / "two").open("w") as two,
        Path("/proc/stat").open() as stat,
    ):
        before = files_of(Files(Path("/")), pid)
        assert stat.fileno() not in before  # no disk
        mine = before[one.fileno()]
        assert mine.path == str(path) and str(tmp_path).startswith(mine.mount)
        rows = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        assert [mine.source, mine.mount, mine.fstype] in [row[:3] for row in rows]
        found = files_now(before, started(pid))
        assert str(found[one.fileno()]) == (
            f"{path} on {mine.mount} ({mine.fstype}, {mine.source})"
        )
        os.dup2(two.fileno(), one.fileno())  # another file has that number now
        assert one.fileno() not in files_now(before, started(pid))
        assert two.fileno() in files_now(before, started(pid))
        assert files_now(before, (started(pid) or 0) + 1) == {}


def test_files_in_a_recording_are_untrusted() -> None:
    good = {"pid": 7, "fd": 4, "path": "/a", "mount": "/", "fstype": "ext4", "source": "/dev/vda"}
    bad: list[dict[str, object]] = [
        {"pid": "7"},
        {"fd": -1},
        {"path": 3},
        {"path": ""},
        {"mount": None},
    ]
    rows = [good, *({**good, **one} for one in bad), {}, "x"]
    found, warnings = session.read(json.dumps({"format": 1, "files": rows}))
    assert found.files == (File(7, 4, "/a", "/", "ext4", "/dev/vda"),) and not warnings
    assert session.read(json.dumps({"format": 1, "files": 7}))[0].files == ()
    again, _ = session.read(json.dumps(Session(files=found.files).to_json()))
    assert again.files == found.files
