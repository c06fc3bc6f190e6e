"""fusetools cache on a live recording of settable calls."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from mounts import end_with_the_test, mount_entry, wait_until
from recording import opened, recorded
from sample import Mounter

import fusetools

pytestmark = pytest.mark.live
needs_bindfs = pytest.mark.skipif(shutil.which("bindfs") is None, reason="this host has no bindfs")
CALLER = """
import contextlib, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(211):
    os.pread(file, 4096, 0)
for _ in range(53):
    with contextlib.suppress(OSError):
        os.getxattr(file, "user.x")
for _ in range(101):
    os.stat(sys.argv[2])
"""


def test_calls_are_split_by_their_requests(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount(kernel_cache=60)
    files = [mount.path / "dir-01" / name for name in ("file-001", "file-002")]
    recording = opened(tmp_path / "perf.data", [mount], sys.executable, "-c", CALLER, *files)
    found = recording.cache()
    calls = {row.syscall: row for row in found.calls}
    # The first one fills the page cache, by read-ahead or by a read that it waits for.
    assert calls["pread64"].calls == 211 and calls["pread64"].none in (210, 211)
    xattr = calls["fgetxattr"]
    assert (xattr.calls, xattr.none, xattr.one, xattr.requests) == (53, 0, 53, 53)
    # Calls with a path are seen by their requests only.
    assert all(calls[name].none is None for name in calls if name in ("newfstatat", "stat"))
    again = {row.operation: row for row in found.asked if not row.negative}["getxattr"]
    assert (again.requests, again.questions, again.again) == (53, 1, 52)
    assert again.saved[1].requests == 52


@contextlib.contextmanager
def bindfs(below: Path, mount: Path, *options: str) -> Iterator[None]:
    mount.mkdir()
    command = ["bindfs", "-f", *options, str(below), str(mount)]
    daemon = subprocess.Popen(command, preexec_fn=end_with_the_test)
    try:
        wait_until(lambda: bool(mount_entry(mount)), "the mount")
        yield
    finally:
        subprocess.run(["umount", "-l", mount], check=False)
        daemon.wait()


def served(tmp_path: Path, sizes: Iterable[int]) -> tuple[Path, Path, Path]:
    """Return a directory with files of these sizes, and paths of a mount and a recording."""
    below, mount, output = (tmp_path / name for name in ("below", "mount", "perf.data"))
    below.mkdir()
    for n, size in enumerate(sizes):
        (below / f"f{n}").write_bytes(bytes(size))
    return below, mount, output


@needs_bindfs
def test_files_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    """High-level callbacks of libfuse get paths, and no inodes: reads of different files are not
    reads of the same one."""
    below, mount, output = served(tmp_path, [4096] * 23)
    with bindfs(below, mount):
        script = f"cat {mount}/f* >/dev/null; for i in 1 2 3; do cat {mount}/f7 >/dev/null; done"
        recorded(output, "--mount", mount, "--", "sh", "-c", script)
    (row,) = [row for row in fusetools.open(output).cache().transfers if row.operation == "read"]
    assert row.again_bytes
    assert row.total_bytes * 3 == row.again_bytes * 26


@needs_bindfs
def test_bytes_and_calls_are_those_of_the_mounts_files(tmp_path: Path) -> None:
    """A program that reads to the end reads each byte once; a file that a symbolic link on the
    mount leads to is elsewhere."""
    sizes = [777 * n + 1 for n in range(23)]
    below, mount, output = served(tmp_path, sizes)
    (tmp_path / "elsewhere").write_bytes(bytes(30_000))
    (below / "link").symlink_to(tmp_path / "elsewhere")
    with bindfs(below, mount, "-o", "direct_io"):
        script = f"cat {mount}/f* >/dev/null; dd if={mount}/link of=/dev/null bs=1000"
        recorded(output, "--mount", mount, "--", "sh", "-c", script)
    found = fusetools.open(output).cache()
    (row,) = [row for row in found.transfers if row.operation == "read"]
    assert row.total_bytes == sum(sizes)
    assert (row.again_bytes, row.in_order) == (0, row.followed) and row.followed >= 23
    reads = {call.syscall: call for call in found.calls}["read"]
    assert (reads.calls, reads.none) == (row.requests, 0)
