"""Peers of a daemon over a connection older than the recording: sshfs over TCP."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import mounts
import pytest
from mounts import wait_until
from recording import recorded, run

import fusetools

pytestmark = pytest.mark.live
SERVER = "/usr/lib/openssh/sftp-server"


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A mount of sshfs without ssh, and the address of the server."""
    if not shutil.which("sshfs") or not Path(SERVER).exists():
        pytest.skip("no sshfs, or no sftp-server")
    tree, path = tmp_path / "tree", tmp_path / "mount"
    tree.mkdir()
    path.mkdir()
    (tree / "file").write_bytes(b"x" * 300_000)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        options = ["-o", f"directport={port},cache=no"]
        daemon = subprocess.Popen(
            ["sshfs", "-f", *options, f"127.0.0.1:{tree}", path],
            preexec_fn=mounts.end_with_the_test,
        )
        listening.settimeout(mounts.HANGS)
        connection, _ = listening.accept()
        with connection:
            server = subprocess.Popen(
                [SERVER],
                stdin=connection.fileno(),
                stdout=connection.fileno(),
                preexec_fn=mounts.end_with_the_test,
            )
    try:
        wait_until(lambda: mounts.mount_entry(path) is not None, "the mount")
        yield path, f"127.0.0.1:{port}"
    finally:
        subprocess.run(["umount", "-l", path], check=False)
        daemon.wait(mounts.HANGS)
        server.wait(mounts.HANGS)


def test_slow_names_the_server(mounted: tuple[Path, str], tmp_path: Path) -> None:
    path, address = mounted
    data = tmp_path / "perf.data"
    recorded(data, "--mount", path, "--", "cat", path / "file")
    slowest = fusetools.open(data).slowest("read")
    reads = slowest.requests
    waited = []
    calls = set()
    for request in reads:
        assert request.meanwhile is not None
        # Each worker asks the server, and waits for the thread that reads all answers, if the
        # answer is not there already. On a busy host it may also wait for another worker's lock.
        assert request.meanwhile.peers == (address,)
        for helper in request.meanwhile.helpers[:1]:
            waited.append(request.unique)
            assert helper.peers == (address,)
            calls |= {call for call, *_ in helper.syscalls}
    assert "read" in calls
    said = " ".join(run("slow", "read", "-n", len(reads), "-i", data).stdout.split())
    shown = [first for first, *_ in slowest.alike()]
    named = len(shown) + sum(first.unique in waited for first in shown)
    assert said.count(f"connected to {address}") == named
    assert f"writev({address})" in run("show", str(waited[0]), "-i", data).stdout
