"""The tested file systems: how to mount each on a directory of given files.

Each is a function of a Place; `FILE_SYSTEMS` lists them by name, with their features.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Union

import mounts
import pytest

HERE = Path(__file__).parent
DAEMONS = HERE / "daemons"
BUILD = HERE / "build"
MARK = "slowed"  # in the path of every file that the delay library slows down
DELAY_MS = 17
FILES, LINKS, SLOW = 13, 5, 3  # prime
# A system call of a Go program that waits for the file system below.
IN_GO = r"(?i)syscall\.[^;]*syscall[^;]*;.*;fuse_(?!dev)"
SLOW_SIZE = 300_000  # larger than a block of any of them

Word = Union[str, Path]


class Place:
    """A folder for one file system, its daemons and mounts; `clean` ends everything.

    source: the given files (source/given/…, source/slowed/…), to be served on mount. If the daemon
    cannot be slowed down, source is itself a mount of a file system that can.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "source"
        self.mount = folder / "mount"
        self.switch = folder / "switch"
        self.log = folder / "delays"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.mounted: list[Path] = []
        self.mount.mkdir()
        self.source.mkdir()
        give(self.source)

    def spawn(
        self, *command: Word, stdin: int | IO[bytes] = subprocess.DEVNULL, stdout: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a daemon, or its helper, with the delay library."""
        environment = os.environ | {
            "LD_PRELOAD": str(BUILD / "delay.so"),
            "DELAY_MARK": MARK,
            "DELAY_MS": str(DELAY_MS),
            "DELAY_SWITCH": str(self.switch),
            "DELAY_LOG": str(self.log),
            "HOME": str(self.folder),
        }
        with (self.folder / "stderr").open("ab") as stderr:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stderr if stdout is None else stdout,
                stderr=stderr,
                env=environment,
                preexec_fn=mounts.end_with_the_test,
            )
        self.processes.append(process)
        return process

    def serve(
        self, *command: Word, on: Path | None = None, stdin: int | IO[bytes] = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start a daemon. Return when it has mounted its file system (by default, on `mount`)."""
        process = self.spawn(*command, stdin=stdin)
        self.wait(process, on or self.mount)
        return process

    def wait(self, process: subprocess.Popen[bytes], path: Path) -> None:
        """Wait until that daemon has mounted its file system."""
        self.mounted.append(path)
        mounts.wait_until(
            lambda: mounts.mount_entry(path) is not None or process.poll() is not None,
            f"the mount of {process.args!r}",
        )
        assert mounts.mount_entry(path) is not None, (self.folder / "stderr").read_text()

    def slow_below(self) -> None:
        """Serve the given files through a slowed bindfs: for a static daemon or a Go program."""
        below = self.source.rename(self.folder / "below")
        self.source.mkdir()
        # No cache in between: exactly the requested data is read.
        self.serve("bindfs", "-f", "-o", "direct_io", below, self.source, on=self.source)

    def unmount(self, path: Path) -> None:
        subprocess.run(["umount", "-l", path], check=True)
        self.mounted.remove(path)

    def clean(self) -> list[str]:
        """Unmount and end everything. Return what did not end by itself."""
        left: list[str] = []
        for path in reversed(self.mounted[:]):
            if mounts.mount_entry(path) is not None:
                self.unmount(path)
        for process in reversed(self.processes):
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    left.append(f"{process.args!r} did not end")
                    process.kill()
                    process.wait()
        return left


def content(i: int) -> bytes:
    """Return the content of given/file-{i}."""
    return bytes([65 + i]) * (4096 * (i + 1) + i)


def give(directory: Path) -> None:
    """Create the files to read: the same for every file system and every run."""
    given, slow = directory / "given", directory / MARK
    given.mkdir()
    slow.mkdir()
    for i in range(FILES):
        (given / f"file-{i:02}").write_bytes(content(i))
    for i in range(LINKS):
        (given / f"link-{i:02}").symlink_to(f"file-{i:02}")
    for i in range(SLOW):
        # Incompressible: an image holds it in blocks of its own.
        (slow / f"{MARK}-{i}").write_bytes(os.urandom(SLOW_SIZE))


@dataclass(frozen=True)
class FileSystem:
    """A file system.

    start: mounts it in a place and returns the daemon. needs: commands. direct: the daemon, or its
    helper, sleeps in injected_delay(); else it waits for the file system below it. names: the
    daemon answers through libfuse's library, which knows the files of requests. sleeps: a regular
    expression for the stack of a slowed daemon's thread: its innermost function and, if other waits
    have the same one, kernel functions. cannot: parts of the workload that it does not support.
    builds: the daemon, of daemons/Makefile.
    """

    name: str
    start: Callable[[Place], subprocess.Popen[bytes]]
    needs: tuple[str, ...]
    writes: bool
    direct: bool
    names: bool
    sleeps: str
    cannot: frozenset[str]
    builds: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


FILE_SYSTEMS: dict[str, FileSystem] = {}


def file_system(
    *needs: str,
    writes: bool = True,
    direct: bool = True,
    names: bool = False,
    sleeps: str = ";injected_delay(;|$)",
    cannot: Sequence[str] = (),
    builds: Sequence[str] = (),
) -> Callable[[Callable[[Place], subprocess.Popen[bytes]]], None]:
    def register(start: Callable[[Place], subprocess.Popen[bytes]]) -> None:
        name = start.__name__.replace("_", "-")
        FILE_SYSTEMS[name] = FileSystem(
            name, start, needs, writes, direct, names, sleeps, frozenset(cannot), tuple(builds)
        )

    return register


def run(*command: Word) -> None:
    subprocess.run(command, check=True, capture_output=True)


def make(*targets: str) -> None:
    """Build programs of daemons/Makefile, or skip with make's error as the reason."""
    made = subprocess.run(["make", "-s", "-C", DAEMONS, *targets], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"cannot build {' '.join(targets)}: {made.stderr.strip().splitlines()[-1]}")


@file_system("bindfs", names=True)
def bindfs(place: Place) -> subprocess.Popen[bytes]:
    return place.serve("bindfs", "-f", place.source, place.mount)


@file_system("sshfs", names=True, sleeps="(sem_wait|futex_[^;]*wait)")
def sshfs(place: Place) -> subprocess.Popen[bytes]:
    """Connect to an sftp-server through two pipes: no network, no ssh."""
    server = "/usr/lib/openssh/sftp-server"
    if not Path(server).exists():
        pytest.skip(f"there is no {server}: apt-get install openssh-sftp-server")
    to_server, from_sshfs = os.pipe()
    to_sshfs, from_server = os.pipe()
    with open(to_server, "rb") as stdin, open(from_server, "wb") as stdout:  # noqa: PTH123
        place.spawn(server, stdin=stdin, stdout=stdout.fileno())
    with open(to_sshfs, "rb") as stdin, open(from_sshfs, "wb") as stdout:  # noqa: PTH123
        daemon = place.spawn(
            *("sshfs", "-f", "-o", "passive", f"sftp:{place.source}", place.mount),
            stdin=stdin,
            stdout=stdout.fileno(),
        )
    place.wait(daemon, place.mount)
    return daemon


@file_system("fuse-overlayfs", names=True)
def fuse_overlayfs(place: Place) -> subprocess.Popen[bytes]:
    upper, work = place.folder / "upper", place.folder / "work"
    upper.mkdir()
    work.mkdir()
    options = f"lowerdir={place.source},upperdir={upper},workdir={work},writeback=1"
    return place.serve("fuse-overlayfs", "-f", "-o", options, place.mount)


@file_system("squashfuse", "mksquashfs", writes=False, names=True)
def squashfuse(place: Place) -> subprocess.Popen[bytes]:
    image = place.folder / f"{MARK}.squashfs"
    run("mksquashfs", place.source, image, "-quiet", "-no-progress", "-no-fragments")
    return place.serve("squashfuse", "-f", image, place.mount)


@file_system("mergerfs")
def mergerfs(place: Place) -> subprocess.Popen[bytes]:
    other = place.folder / "other"
    other.mkdir()
    options = "category.create=ff,cache.files=auto-full,cache.writeback=true"
    return place.serve("mergerfs", "-f", "-o", options, f"{place.source}:{other}", place.mount)


@file_system("unionfs", names=True)
def unionfs_fuse(place: Place) -> subprocess.Popen[bytes]:
    upper = place.folder / "upper"
    upper.mkdir()
    branches = f"{upper}=RW:{place.source}=RO"
    return place.serve("unionfs", "-f", "-o", "cow", branches, place.mount)


@file_system("ntfs-3g", "mkntfs")
def ntfs_3g(place: Place) -> subprocess.Popen[bytes]:
    image = place.folder / f"{MARK}.ntfs"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    run("mkntfs", "--force", "--fast", "--quiet", image)
    # Fill it through another mount, so that the tested daemon has no data of it in memory.
    filling = place.serve("ntfs-3g", "-o", "no_detach", image, place.mount)
    run("cp", "-a", *place.source.iterdir(), place.mount)
    run("umount", place.mount)
    place.mounted.remove(place.mount)
    filling.wait(10)
    options = "no_detach,user_xattr"
    return place.serve("ntfs-3g", "-o", options, image, place.mount)


@file_system("fuse2fs", "mkfs.ext4", names=True)
def fuse2fs(place: Place) -> subprocess.Popen[bytes]:
    """It asks libfuse for no paths of open files."""
    image = place.folder / f"{MARK}.ext4"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    run("mkfs.ext4", "-q", "-F", "-d", place.source, image)
    return place.serve("fuse2fs", "-f", "-o", "rw,fakeroot", image, place.mount)


def encrypt(place: Place, plain: Path, data: Path) -> list[Word]:
    """Make a gocryptfs of these files in ``data``. Return the command that serves it, without its
    folders."""
    password = place.folder / "password"
    password.write_text("no secret\n")
    data.mkdir()
    run(
        "gocryptfs", "-q", "-init", "-plaintextnames", "-scryptn", "10", "-passfile", password, data
    )
    serving: list[Word] = ["gocryptfs", "-fg", "-passfile", password]
    filling = place.serve(*serving, data, place.mount)
    run("cp", "-a", *plain.iterdir(), place.mount)
    run("umount", place.mount)
    place.mounted.remove(place.mount)
    filling.wait(10)
    return serving


@file_system("gocryptfs", "bindfs", direct=False, sleeps=IN_GO)
def gocryptfs(place: Place) -> subprocess.Popen[bytes]:
    serving = encrypt(place, place.source.rename(place.folder / "plain"), place.source)
    place.slow_below()
    return place.serve(*serving, place.source, place.mount)


@file_system(
    *("rclone", "bindfs"),
    direct=False,
    sleeps=IN_GO,
    cannot=("symlink", "readlink", "mmap", "msync"),
)
def rclone(place: Place) -> subprocess.Popen[bytes]:
    place.slow_below()
    return place.serve(
        *("rclone", "mount", "--config", "/dev/null", "--cache-dir", place.folder / "cache"),
        *("--vfs-cache-mode", "writes", "--vfs-write-back", "0", "--buffer-size", "0"),
        *(place.source, place.mount),
    )


@file_system(names=True)
def pyfuse3(place: Place) -> subprocess.Popen[bytes]:
    """Use PyPI's pyfuse3 if this Python has it, else Debian's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import pyfuse3"], capture_output=True).returncode == 0:
            return place.serve(python, DAEMONS / "pyfuse3fs.py", place.source, place.mount)
    pytest.skip("no Python here has pyfuse3: apt-get install python3-pyfuse3")


@file_system("cargo", writes=False, builds=["../build/fuserfs"])
def fuser(place: Place) -> subprocess.Popen[bytes]:
    return place.serve(BUILD / "fuserfs", place.source, place.mount, stdin=subprocess.PIPE)


@file_system("go", "bindfs", writes=False, direct=False, sleeps=IN_GO, builds=["../build/bazilfs"])
def bazil(place: Place) -> subprocess.Popen[bytes]:
    place.slow_below()
    return place.serve(BUILD / "bazilfs", place.source, place.mount)


@file_system(
    "go", "bindfs", writes=False, direct=False, sleeps=IN_GO, builds=["../build/jacobsafs"]
)
def jacobsa(place: Place) -> subprocess.Popen[bytes]:
    place.slow_below()
    return place.serve(BUILD / "jacobsafs", place.source, place.mount)


@file_system(
    "bindfs", direct=False, sleeps="(open|pread)[^;]*;.*;fuse_(?!dev)", builds=["../build/ownfs"]
)
def own_protocol(place: Place) -> subprocess.Popen[bytes]:
    place.slow_below()
    return place.serve(BUILD / "ownfs", place.source, place.mount)


def require(*commands: str) -> None:
    """Skip if this host cannot run these, or cannot count requests."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting file systems needs root and /dev/fuse")
    if absent := [command for command in commands if not shutil.which(command)]:
        pytest.skip(f"not installed: {', '.join(absent)} (tools/install.sh tests)")
    if not Path("/sys/kernel/tracing/events/fuse/fuse_request_send").exists():
        pytest.skip("this kernel has no fuse:fuse_request_send to count requests by")
