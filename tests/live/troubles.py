"""Problems set up on real mounts, each with the finding of `fusetools why` that must come first.

A trouble is a generator: it yields a Case to record, and cleans up. `make test-why` records each
several times, alone and in pairs; tests/live/test_why_live.py each once.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mounts
from mounts import mount_entry, wait_until
from sample import SampleMount, SlowServer

SOURCE = Path(__file__).parent / "faultfs.c"
PYTHON = sys.executable

STAT_LOOP = """
import os, sys
for _ in range({rounds}):
    for n in range({files}):
        os.stat(f"{{sys.argv[1]}}/d0/f{{n}}")
"""
READERS = """
import os, sys, threading
def read(path):
    fd = os.open(path, os.O_RDONLY)
    for n in range({each}):
        os.pread(fd, 4096, 4096 * ({step} * n % 2000))
    os.close(fd)
threads = [threading.Thread(target=read, args=(f"{{sys.argv[1]}}/d0/f{{n}}",)) for n in range({n})]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
HAMMER = """
import os, sys, threading, time, subprocess
other = subprocess.Popen([sys.executable, "-c", '''
import os, sys, time
for n in range(40):
    os.stat(sys.argv[1] + "/d1/f%d" % n)
    time.sleep(0.02)
''', sys.argv[1]])
path = sys.argv[1] + "/d0/f7"
while other.poll() is None:
    os.stat(path)
"""
OPENS = """
import os, sys
for n in range(40):
    for d in ("slow", "d0", "d1", "d2"):
        os.close(os.open(f"{sys.argv[1]}/{d}/f{n}", os.O_RDONLY))
"""
NEGATIVE = """
import os, sys
for _ in range(3):
    for n in range(1590):
        os.path.exists(f"{sys.argv[1]}/d0/libx{n}.so")
"""
SMALL = """
import os, sys
fd = os.open(sys.argv[1] + "/d0/f0", os.O_RDONLY)
for n in range(7813):
    os.read(fd, 512)
"""
ATTRIBUTES = """
import os, sys
for _ in range(40):
    for n in range(100):
        try:
            os.getxattr(f"{sys.argv[1]}/d0/f{n}", "user.none")
        except OSError:
            pass
"""
SPIN = "while True: pass"
ORDINARY = ("chrt", "--other", "0")  # without the campaign's real-time policy


def build(folder: Path) -> Path:
    """Compile the faulty file system."""
    program = folder / "faultfs"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
    ).stdout.split()
    command = ["cc", "-O1", "-g", "-fno-omit-frame-pointer", "-o", program, SOURCE, *flags]
    subprocess.run([*map(str, command), "-pthread"], check=True)
    return program


@dataclass
class Set:
    """A recording: mounts, the workload's command, and options of record."""

    mounts: list[Path]
    command: list[str]
    options: list[str] = field(default_factory=list)


class Stage:
    """A folder for troubles and the processes that they start."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder, self.program = folder, program
        self.stack = contextlib.ExitStack()

    def spawn(self, *words: object, **more: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=more.pop("stdin", subprocess.DEVNULL),
            preexec_fn=mounts.end_with_the_test,
            **more,
        )
        self.stack.callback(self.end, process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def place(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir()
        return place

    def mounted(self, place: Path, process: subprocess.Popen[bytes]) -> Path:
        self.stack.callback(self._unmount, place)
        wait_until(lambda: mount_entry(place) is not None or process.poll() is not None, "a mount")
        assert process.poll() is None, process.args
        return place

    def _unmount(self, place: Path) -> None:
        if mount_entry(place) is not None:
            subprocess.run(["umount", "-l", place], check=True)

    def faultfs(self, *options: str, before: tuple[str, ...] = (), name: str = "mnt") -> Path:
        place = self.place(name)
        self.daemon = self.spawn(*before, self.program, "-f", *options, place)
        return self.mounted(place, self.daemon)

    def samplefs(self, *options: str) -> SampleMount:
        mount = SampleMount(self.folder, list(options), "with-symbols")
        self.stack.callback(mount.clean)
        mount.wait()
        return mount


Trouble = Callable[[Stage], Set]


def python(code: str, *words: object) -> list[str]:
    return [PYTHON, "-c", code, *map(str, words)]


# The troubles. Each name is the code of the finding that must come first.


def slow_directory(stage: Stage) -> Set:
    mount = stage.faultfs("--open=sleep:20000:/slow")
    return Set([mount], python(OPENS, mount))


def hammer(stage: Stage) -> Set:
    mount = stage.faultfs("--attr=0", "--entry=0")
    return Set([mount], python(HAMMER, mount))


def lock(stage: Stage) -> Set:
    mount = stage.faultfs("--read=lock:2000", "--direct")
    return Set([mount], python(READERS.format(each=40, step=7, n=8), mount))


def few_threads(stage: Stage) -> Set:
    mount = stage.faultfs("--read=sleep:2000", "--direct", "-s")
    return Set([mount], python(READERS.format(each=40, step=7, n=8), mount))


def caches_off(stage: Stage) -> Set:
    mount = stage.faultfs("--attr=0", "--entry=0")
    return Set([mount], python(STAT_LOOP.format(rounds=100, files=40), mount))


def quota(stage: Stage) -> Set:
    mount = stage.faultfs("--getattr=spin:400", "--attr=0", before=ORDINARY)
    group = quota_group(stage, stage.daemon.pid)
    assert group
    return Set([mount], python(STAT_LOOP.format(rounds=20, files=40), mount))


def quota_group(stage: Stage, pid: int, share: float = 0.2) -> Path:
    """Give a process a cgroup with a CPU quota, which alone limits it: other programs wait."""
    for root, period, amount, weight, most in (
        (Path("/sys/fs/cgroup/cpu"), "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares", 262144),
        (Path("/sys/fs/cgroup"), "", "cpu.max", "cpu.weight", 10000),
    ):
        group = root / f"troubles-{os.getpid()}"
        if not (root / "cgroup.procs").exists():
            continue
        group.mkdir()
        stage.stack.callback(_remove, root, group)
        (group / weight).write_text(str(most))
        if period:
            (group / period).write_text("100000")
            (group / amount).write_text(str(int(share * 100000)))
        else:
            (group / amount).write_text(f"{int(share * 100000)} 100000")
        (group / "cgroup.procs").write_text(str(pid))
        return group
    raise OSError("no cgroup with a CPU quota")


def _remove(root: Path, group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (root / "cgroup.procs").write_text(pid)
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "an empty cgroup")
    group.rmdir()


def cpu_taken(stage: Stage) -> Set:
    # The daemon and two other processes share one CPU; the caller has another.
    cpu = min(os.sched_getaffinity(0))
    pinned = (*ORDINARY, "taskset", "-c", str(cpu))
    mount = stage.faultfs("--getattr=spin:300", "--attr=0", before=pinned)
    for _ in range(2):
        stage.spawn(*pinned, PYTHON, "-c", SPIN)
    return Set([mount], python(STAT_LOOP.format(rounds=10, files=40), mount))


def slow_server(stage: Stage) -> Set:
    server = SlowServer(stage.folder / "server.log", "--delay", "10ms")
    stage.stack.callback(server.stop)
    mount = stage.samplefs("--kernel-cache=0", "--download", f"read={server.port}")
    return Set([mount.path], ["sh", "-c", f"cat {mount.path}/dir-0[0-4]/file-00[0-9] >/dev/null"])


PROXY = """
import socket, subprocess, sys, threading, time
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
sftp = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def back():
    while data := sftp.stdout.read(65536):
        time.sleep(0.01)
        peer.sendall(data)
threading.Thread(target=back, daemon=True).start()
while data := peer.recv(65536):
    sftp.stdin.write(data)
"""


def slow_sshfs(stage: Stage) -> Set:
    """sshfs to an sftp-server 10 ms away, without ssh."""
    tree = stage.place("tree")
    for number in range(40):
        (tree / f"f{number}").write_bytes(b"x" * 4000)
    proxy = stage.spawn(PYTHON, "-c", PROXY, "/usr/lib/openssh/sftp-server", stdout=subprocess.PIPE)
    assert proxy.stdout is not None
    port = int(proxy.stdout.readline())
    place = stage.place("mnt")
    options = f"directport={port},dir_cache=no"
    sshfs = stage.spawn("sshfs", "-f", "-o", options, f"127.0.0.1:{tree}", place)
    mount = stage.mounted(place, sshfs)
    return Set([mount], ["sh", "-c", f"cat {mount}/f[0-9] >/dev/null"])


def slow_disk(stage: Stage) -> Set:
    """bindfs over a file system on a loop device with a limit of reads a second."""
    image, below = stage.folder / "image", stage.place("below")
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, below], check=True)
    stage.stack.callback(stage._unmount, below)
    for number in range(20):
        (below / f"f{number}").write_bytes(os.urandom(1 << 20))
    subprocess.run(["umount", below], check=True)
    subprocess.run(["mount", "-o", "loop", image, below], check=True)
    entry = mount_entry(below)
    assert entry is not None
    place = stage.place("mnt")
    bindfs = stage.spawn("bindfs", "--multithreaded", "-f", below, place)
    mount = stage.mounted(place, bindfs)
    root = Path("/sys/fs/cgroup/blkio")
    group = root / f"troubles-{os.getpid()}"
    group.mkdir()
    stage.stack.callback(_remove, root, group)
    (group / "blkio.throttle.read_bps_device").write_text(f"{entry[2]} 4000000")
    (group / "cgroup.procs").write_text(str(bindfs.pid))
    return Set([mount], ["sh", "-c", f"cat {mount}/f* >/dev/null"])


def small_requests(stage: Stage) -> Set:
    mount = stage.faultfs("--direct")
    return Set([mount], python(SMALL, mount))


def negative_lookups(stage: Stage) -> Set:
    mount = stage.faultfs()
    return Set([mount], python(NEGATIVE, mount))


def background_limit(stage: Stage) -> Set:
    """Six readers through the page cache: reads ahead go one at a time."""
    mount = stage.faultfs("--read=sleep:2000", "--background=1")
    reads = " & ".join(f"head -c 4M {mount}/d0/f{n} >/dev/null" for n in range(6))
    return Set([mount], ["sh", "-c", f"{reads} & wait"])


def metadata(stage: Stage) -> Set:
    mount = stage.faultfs()
    dd = ["dd", "if=/dev/zero", f"of={mount}/d0/f0", "bs=4k", "count=2000", "conv=notrunc"]
    return Set([mount], dd)


def attributes_absent(stage: Stage) -> Set:
    mount = stage.faultfs()
    return Set([mount], python(ATTRIBUTES, mount))


def read_again(stage: Stage) -> Set:
    mount = stage.faultfs()
    return Set([mount], ["sh", "-c", f"for n in $(seq 200); do cat {mount}/d0/f0 >/dev/null; done"])


def list_and_stat(stage: Stage) -> Set:
    mount = stage.samplefs()
    return Set([mount.path], ["find", str(mount.path), "-size", "+1M"])


def errors_frequent(stage: Stage) -> Set:
    mount = stage.faultfs("--fail=open:5")
    return Set([mount], ["sh", "-c", f"cat {mount}/d[0-2]/f* 2>/dev/null; true"])


STOPS = """
import os, signal, sys, time
daemon = int(sys.argv[1])
while True:
    time.sleep(0.05)
    os.kill(daemon, signal.SIGSTOP)
    time.sleep(0.2)
    os.kill(daemon, signal.SIGCONT)
"""
RARE_STATS = """
import os, sys, time
end = time.monotonic() + 2
while time.monotonic() < end:
    os.stat(f"{sys.argv[1]}/d0/f7")
    time.sleep(0.002)
"""


def stopped(stage: Stage) -> Set:
    """Another process stops the daemon and lets it continue."""
    mount = stage.faultfs("--attr=0")
    stops = stage.spawn(PYTHON, "-c", STOPS, stage.daemon.pid)
    stage.stack.callback(stage.daemon.send_signal, signal.SIGCONT)
    stage.stack.callback(stage.end, stops)
    return Set([mount], python(RARE_STATS, mount))


def children(stage: Stage) -> Set:
    """The daemon runs a program for each open."""
    mount = stage.faultfs("--open=child:0")
    return Set([mount], ["sh", "-c", f"cat {mount}/d0/f[0-4]? >/dev/null"])


def stacked(stage: Stage) -> Set:
    """bindfs over another FUSE mount, which is the slow one."""
    below = stage.faultfs("--open=sleep:5000", name="below")
    place = stage.place("mnt")
    mount = stage.mounted(place, stage.spawn("bindfs", "-f", below, place))
    return Set([mount, below], ["sh", "-c", f"cat {mount}/d0/f[0-4]? >/dev/null"])


# Cases that resemble a trouble without being one.


def quiet_find(stage: Stage) -> Set:
    mount = stage.faultfs()
    return Set([mount], ["find", str(mount)])


def quiet_sample(stage: Stage) -> Set:
    mount = stage.samplefs()
    return Set([mount.path], ["find", str(mount.path), "-name", "file-00*"])


def quiet_read(stage: Stage) -> Set:
    mount = stage.faultfs()
    return Set([mount], ["sh", "-c", f"cat {mount}/d[0-2]/f[0-9] >/dev/null"])


def quiet_stats(stage: Stage) -> Set:
    mount = stage.faultfs()
    return Set([mount], python(STAT_LOOP.format(rounds=100, files=40), mount))


def quiet_tar(stage: Stage) -> Set:
    mount = stage.samplefs()
    return Set([mount.path], ["tar", "-cf", "/dev/null", "-C", str(mount.path), "dir-00", "dir-01"])


TROUBLES: dict[str, tuple[Trouble, str]] = {
    "slow_directory": (slow_directory, "daemon_sleeps"),
    "hammer": (hammer, "hammer"),
    "lock": (lock, "daemon_lock"),
    "few_threads": (few_threads, "few_threads"),
    "caches_off": (caches_off, "caches_off"),
    "quota": (quota, "cpu_quota"),
    "cpu_taken": (cpu_taken, "cpu_taken"),
    "slow_server": (slow_server, "slow_server"),
    "slow_sshfs": (slow_sshfs, "slow_server"),
    "slow_disk": (slow_disk, "slow_disk"),
    "small_requests": (small_requests, "small_requests"),
    "negative_lookups": (negative_lookups, "negative_lookups"),
    "background_limit": (background_limit, "background_limit"),
    "list_and_stat": (list_and_stat, "stat_for_each_entry"),
    "read_again": (read_again, "read_again"),
    "stopped": (stopped, "daemon_halted"),
    "children": (children, "daemon_waits_for_process"),
    "stacked": (stacked, "daemon_sleeps"),
}
# Found, but not as the first finding.
MINOR: dict[str, tuple[Trouble, str]] = {
    "metadata": (metadata, "metadata_for_each_write"),
    "errors_frequent": (errors_frequent, "errors_frequent"),
    "attributes_absent": (attributes_absent, "attributes_absent"),
}
PAIRS = (
    "slow_directory+slow_server",
    "slow_directory+caches_off",
    "lock+few_threads",
    "lock+slow_disk",
)
QUIET: dict[str, Trouble] = {
    "quiet_find": quiet_find,
    "quiet_sample": quiet_sample,
    "quiet_read": quiet_read,
    "quiet_stats": quiet_stats,
    "quiet_tar": quiet_tar,
}


@contextlib.contextmanager
def stages(folder: Path, program: Path, made: Sequence[Trouble]) -> Iterator[Set]:
    """Set up troubles, each on a mount of its own; their workloads run at once."""
    with contextlib.ExitStack() as stack:
        sets = []
        for number, make in enumerate(made):
            own = folder / str(number)
            own.mkdir()
            stage = Stage(own, program)
            stack.enter_context(stage.stack)
            sets.append(make(stage))
        if len(sets) == 1:
            yield sets[0]
            return
        commands = " & ".join(shlex.join(of.command) for of in sets)
        yield Set(
            [mount for of in sets for mount in of.mounts],
            ["sh", "-c", f"{commands} & wait"],
            [word for of in sets for word in of.options],
        )
