"""The daemon of a mount is a process that has FUSE's device open for that connection.

Anybody can have its name, its command line, or a device without a mount.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import HANGS
from sample import Mounter

from fusetools.host.facts import Mount
from fusetools.host.files import Files
from fusetools.host.mounts import parse_mountinfo, read_mounts
from fusetools.host.processes import FUSE, is_fuse_device, open_files, shows_connections
from fusetools.stuck import machine
from fusetools.stuck.moment import Connection

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("samples")]

RAWFS = Path(__file__).parent / "rawfs.py"
FILES = Files(Path("/"))
HOLD = "import os, sys; os.open(sys.argv[1], os.O_RDONLY); print('open', flush=True); input()"


@contextlib.contextmanager
def dead(place: Path) -> Iterator[int]:
    """Yield the connection of a mount whose daemon has ended, in a private mount namespace."""
    place.mkdir()
    script = f"{sys.executable} {RAWFS} {place} & read x; kill -KILL $!; wait $!; echo; read x"
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        try:
            assert shell.stdout.readline().startswith("ready ")
            (own,) = (
                mount.connection
                for mount in parse_mountinfo(Path(f"/proc/{shell.pid}/mountinfo").read_text())
                if mount.path == str(place)
            )
            shell.stdin.write("\n")
            shell.stdin.flush()
            assert shell.stdout.readline() == "\n"  # the daemon has exited
            yield own
        finally:
            shell.stdin.close()
            shell.wait(HANGS)


@contextlib.contextmanager
def holding(file: Path, *arguments: object) -> Iterator[int]:
    """A process that has ``file`` open, with that command line."""
    command = [sys.executable, "-c", HOLD, str(file), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "open\n"
            yield process.pid
        finally:
            process.kill()
            process.wait(HANGS)


def found(connection: int) -> tuple[Mount, Connection]:
    """Return the daemon of the mount according to `record` and `stuck`."""
    (mount,) = (m for m in read_mounts(FILES, open_files(FILES)) if m.connection == connection)
    (now,) = (c for c in machine.read().connections if c.number == connection)
    return mount, now


def test_a_file_named_fuse_makes_no_daemon(tmp_path: Path) -> None:
    named = tmp_path / "fuse"
    named.touch()
    with dead(tmp_path / "mount") as connection, holding(named, tmp_path / "mount") as pid:
        assert pid not in open_files(FILES)
        mount, now = found(connection)
        assert (mount.daemon_pid, mount.servers) == (None, ())
        assert (now.daemon, now.holders) == (None, ())


def test_a_device_without_a_mount_makes_no_daemon(tmp_path: Path) -> None:
    """A daemon of another mount does not count either, whatever its command line says."""
    if not shows_connections(FILES):
        pytest.skip("this kernel does not show which connection a descriptor has")
    mount_point = tmp_path / "mount"
    with dead(mount_point) as connection, holding(Path("/dev/fuse"), mount_point) as pid:
        assert FUSE in {link for _, link in open_files(FILES)[pid]}
        mount, now = found(connection)
        assert (mount.daemon_pid, mount.servers) == (None, ())
        assert (now.daemon, now.holders) == (None, ())


def test_the_device_counts_under_another_name(tmp_path: Path) -> None:
    """A device node as in a container counts; a file with the same name does not."""
    device, file = tmp_path / "device", tmp_path / "fuse"
    os.mknod(device, 0o020600, os.makedev(10, 229))
    file.touch()
    assert is_fuse_device(str(device)) and is_fuse_device("/dev/fuse")
    assert not is_fuse_device(str(file)) and not is_fuse_device("/dev/null")
    assert not is_fuse_device(str(tmp_path / "none"))


def test_examining_a_descriptor_sends_no_request(sample_mount: Mounter) -> None:
    """A file "fuse" lies on a FUSE mount, whose daemon may hang; stat(2) would send a request."""
    sample = sample_mount(own_tree=True)
    (sample.tree / "fuse").touch()
    with holding(sample.path / "fuse") as pid:
        asked = sample.ask("internal", "affairs")
        assert pid not in open_files(FILES)
        assert sample.ask("internal", "affairs") == asked
        os.stat(sample.path / "fuse")
        assert sample.ask("internal", "affairs") != asked
