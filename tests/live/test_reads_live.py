"""A daemon that waits for another process in read(2) and readv(2), as it waits for requests."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NamedTuple

import mounts
import pytest
from mounts import end_with_the_test, mount_entry, wait_until
from recording import recorded, run
from variants import variants

import fusetools

pytestmark = pytest.mark.live
ANSWER = 0.005  # seconds that the other process needs (askfs.c)
ASKED = 53


@pytest.fixture(scope="module")
def askfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without frame pointers, as distributions build their daemons."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True)
    if flags.returncode:
        pytest.skip("no libfuse3 to build with: apt-get install libfuse3-dev")
    program = tmp_path_factory.mktemp("askfs") / "askfs"
    source = Path(__file__).with_name("askfs.c")
    command: list[str | Path] = ["gcc", "-O2", "-g", "-fomit-frame-pointer", "-o", program, source]
    subprocess.run([*command, *flags.stdout.decode().split()], check=True)
    return program


class Asking(NamedTuple):
    mount: Path
    daemon: int


@pytest.fixture
def asking(askfs: Path, tmp_path: Path) -> Iterator[Callable[[str], Asking]]:
    started: list[tuple[Path, subprocess.Popen[bytes]]] = []

    def start(how: str) -> Asking:
        place = tmp_path / how
        place.mkdir()
        command: list[str | Path] = [askfs, how, place]
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=end_with_the_test)
        started.append((place, daemon))
        wait_until(lambda: mount_entry(place) is not None, "the mount")
        return Asking(place, daemon.pid)

    yield start
    for place, daemon in started:
        if mounts.mount_entry(place) is not None:
            subprocess.run(["umount", "-l", place], check=True)
        daemon.wait(mounts.HANGS)


@pytest.mark.parametrize("how", ["pipe", *variants("socket")])
@pytest.mark.parametrize("call", ["read", "readv"])
def test_a_wait_in_read_has_its_whole_stack(
    asking: Callable[[str], Asking], tmp_path: Path, how: str, call: str
) -> None:
    mount, path = asking(how).mount, tmp_path / "perf.data"
    names = [f"{'v' if call == 'readv' else 'r'}-{i}" for i in range(ASKED)]
    files = (mount / name for name in names)
    recorded(path, "--mount", mount, "--", "stat", "-c", "%s", *files)
    recording = fusetools.open(path)
    # Each stat is one lookup, which also returns the attributes.
    (lookup,) = [h for h in recording.hist("lookup").histograms if h.layer == "request"]
    assert lookup.count >= ASKED
    # A pre-empted thread waits for a CPU, not in its call.
    shown = recording.stacks("off-cpu", layers=["daemon"], states=["blocked"])
    assert shown.cut_ns is not None and shown.cut_ns <= 0.05 * (shown.total_ns or 0)
    waits = {s: us for s, us in shown.stacks.items() if f";ask_in_{call};" in s}
    assert sum(waits.values()) >= lookup.count * ANSWER * 1e6 * 0.95
    for stack in waits:
        assert re.search(rf"clone3?;start_thread;.*;attributes;ask_in_{call};.*read", stack)
    # Only the call chains of the copied stacks are kept.
    command: list[str | Path] = ["perf", "evlist", "-v", "-i", path]
    evlist = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "STACK_USER" not in evlist


def test_only_reads_from_others_are_copied(asking: Callable[[str], Asking]) -> None:
    """A thread may splice its requests through a pipe of its own, and holds both ends."""
    mount, daemon = asking("pipe")

    def pipes() -> dict[int, int]:
        """Return the daemon's readable pipes, and the number of its descriptors of the same
        pipe."""
        opened = list(Path(f"/proc/{daemon}/fd").iterdir())
        links = {int(fd.name): os.readlink(fd) for fd in opened}
        ends = Counter(links.values())
        # proc_pid_fd(5): the permissions of the link's owner are those of the descriptor.
        read = {int(fd.name) for fd in opened if fd.lstat().st_mode & stat.S_IRUSR}
        return {fd: ends[link] for fd, link in links.items() if link[:5] == "pipe:" and fd in read}

    done = run("record", "--mount", mount, "--dry-run", "--", "true", check=True)
    copied = {int(number) for number in re.findall(r"\bfd == (\d+)", done.stdout + done.stderr)}
    from_others = {fd for fd, ends in pipes().items() if ends == 1}
    assert from_others and copied == from_others
