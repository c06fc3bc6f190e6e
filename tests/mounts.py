"""Mounts on this host for tests: one test at a time, and nothing outlives it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

PR_SET_PDEATHSIG = 1
# Tells a hang from a busy machine, and is no measure of anything.
HANGS = 120.0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One live test at a time of all runs on this host, as there is one recording at a time."""
    with Path(tempfile.gettempdir(), "fusetools-live-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        nobody_records()
        yield


def nobody_records() -> None:
    """Returns when no recording is under way, of a test or of anybody else."""
    with contextlib.suppress(FileNotFoundError), Path("/run/fusetools/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = HANGS) -> None:
    """Returns when condition() holds; fails the test when it does not within that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s in vain for {what}")
        time.sleep(0.002)


def mount_entry(path: Path) -> list[str] | None:
    """The fields of the mount's line in /proc/self/mountinfo, read without touching the mount."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[4] == str(path):
            return fields
    return None


def connection(path: Path) -> int:
    """The number that the kernel's tracepoints call the connection of this mount."""
    entry = mount_entry(path)
    assert entry is not None
    major, minor = map(int, entry[2].split(":"))
    return major << 20 | minor


def end_with_the_test() -> None:
    """In a child: SIGTERM when the test run is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
