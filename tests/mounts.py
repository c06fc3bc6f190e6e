"""Mounts on this host for tests: one test at a time, and nothing outlives it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

PR_SET_PDEATHSIG = 1
# Timeout to detect a hang on a busy machine; it measures nothing.
HANGS = 120.0


@contextlib.contextmanager
def alone(records: bool = True) -> Iterator[None]:
    """Run one live test at a time, of all test runs on this host; beside it one that records
    nothing."""
    name = "fusetools-live-tests.lock" if records else "fusetools-unrecorded-tests.lock"
    with Path(tempfile.gettempdir(), name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if records:
            nobody_records()
        yield


def nobody_records() -> None:
    """Wait until no recording is running, of a test or of another program."""
    with contextlib.suppress(FileNotFoundError), Path("/run/fusetools/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = HANGS) -> None:
    """Wait until condition() is true. Fail the test if it is not within that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s in vain for {what}")
        time.sleep(0.002)


def mount_entry(path: Path) -> list[str] | None:
    """Return the fields of the mount's line in /proc/self/mountinfo, without touching the mount."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[4] == str(path):
            return fields
    return None


def connection(path: Path) -> int:
    """Return the connection's number in the kernel's tracepoints."""
    entry = mount_entry(path)
    assert entry is not None
    major, minor = map(int, entry[2].split(":"))
    return major << 20 | minor


def end_with_the_test() -> None:
    """Get SIGTERM when the test run is killed. For a child."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def build_hangfs(folder: Path) -> Path:
    """Compile tests/live/hangfs.c into the folder."""
    if not shutil.which("cc") or subprocess.run(["pkg-config", "--exists", "fuse3"]).returncode:
        pytest.skip("no C compiler, or no libfuse3-dev")
    program = folder / "hangfs"
    flags = subprocess.check_output(["pkg-config", "--cflags", "--libs", "fuse3"], text=True)
    source = Path(__file__).parent / "live" / "hangfs.c"
    subprocess.run(
        ["cc", "-O1", "-g", "-o", program, source, *flags.split(), "-pthread"], check=True
    )
    return program
