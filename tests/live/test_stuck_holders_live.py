"""Holders of locks, and other threads for which the threads of a hanging daemon wait."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hanging import LONG, Hang, Hanging, looked_at, stuck
from mounts import HANGS, end_with_the_test, mount_entry, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.unrecorded,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and look at others"),
]


def test_a_mutex_with_a_time_out(hang: Hang) -> None:
    mount = hang("timed")
    mount.call("one")
    cause = looked_at(mount)["causes"][0]
    holder = f"thread {mount.thread('holder')}, holds"  # the function that it began with
    assert cause["text"].startswith(f"a mutex is held by hangfs ({holder})")


def test_a_mutex_that_its_holder_wants_again(hang: Hang) -> None:
    mount = hang("self")
    mount.call("one")
    (cause,) = looked_at(mount)["causes"]
    assert cause["kind"] == "deadlock"
    assert f"thread {mount.thread('holder')}) waits for the mutex" in cause["text"]
    assert "held by itself" in cause["text"]


def test_a_mutex_that_another_process_holds(hang: Hang) -> None:
    """At the beginning of a page: the memory before it is not mapped."""
    mount = hang("shared")
    mount.call("one")
    cause = looked_at(mount)["causes"][0]
    assert cause["text"].startswith(f"a mutex is held by hangfs (pid {mount.thread('holder')})")


def test_a_mutex_whose_holder_has_ended(hang: Hang) -> None:
    mount = hang("ended")
    mount.call("one")
    cause = looked_at(mount)["causes"][0]
    assert cause["kind"] == "lock"
    assert f"thread {mount.thread('holder')}, which its process does not have" in cause["text"]


def test_a_thread_whose_end_is_waited_for(hang: Hang) -> None:
    mount = hang("join")
    mount.call("one")
    cause = looked_at(mount)["causes"][0]
    waited = f"hangfs waits for the end of hangfs (thread {mount.thread('holder')}, holds)"
    assert cause["text"].startswith(waited)


def test_a_mutex_in_another_pid_namespace(hangfs: Path, tmp_path: Path) -> None:
    """Its owner has another number there."""
    script = tmp_path / "inside"
    script.write_text(f'#!/bin/sh\nexec unshare --pid --fork --kill-child {hangfs} "$@"\n')
    script.chmod(0o755)
    mount = Hanging(script, tmp_path / "mount", "mutex")
    try:
        mount.call("one", "two")
        time.sleep(LONG)
        _, result = stuck("--mount", mount.path)
        (found,) = result["mounts"]
        (cause, *_) = found["causes"]
        assert cause["kind"] == "lock" and cause["text"].startswith("a mutex is held by hangfs (")
        (waits,) = [thread for thread in found["threads"] if thread["holder"]]
        (holder,) = [t for t in found["threads"] if t["tid"] == waits["holder"]]
        assert "nanosleep" in holder["call"]
    finally:
        mount.close()


def test_a_file_lock_that_another_process_holds(hang: Hang, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        mount = hang("flock", str(lock))
        mount.call("one")
        (cause, *_) = looked_at(mount)["causes"]
    assert cause["kind"] == "lock"
    assert cause["text"].startswith(f"a lock of {lock} is held by ")
    assert cause["fixes"][0]["command"] == f"kill {os.getpid()}"
    assert f"waits in flock for a lock of {lock}, held by " in cause["chain"][0]
    assert f"(pid {os.getpid()})" in cause["chain"][0]


def test_the_child_that_is_waited_for(hang: Hang) -> None:
    mount = hang("last")
    mount.call("one")
    (cause, *_) = looked_at(mount)["causes"]
    assert f"hangfs waits for hangfs (pid {mount.thread('child')})" in cause["text"]


def test_a_frozen_file_system_below(tmp_path: Path) -> None:
    for program in ("bindfs", "mkfs.ext4", "fsfreeze", "losetup"):
        if shutil.which(program) is None:
            pytest.skip(f"this host has no {program}")
    image, below, mount = (tmp_path / name for name in ("image", "below", "mount"))
    for folder in (below, mount):
        folder.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, below], check=True)
    daemon = subprocess.Popen(["bindfs", "-f", below, mount], preexec_fn=end_with_the_test)
    caller = None
    try:
        wait_until(lambda: bool(mount_entry(mount)), "the mount")
        subprocess.run(["fsfreeze", "-f", below], check=True)
        caller = subprocess.Popen(["touch", mount / "new"])
        time.sleep(LONG)
        _, result = stuck("--mount", mount)
        cause = result["mounts"][0]["causes"][0]
        assert cause["reason"]["code"] == "hang_frozen"
        assert cause["text"].startswith(f"the file system of {below}/new is frozen: bindfs")
        subprocess.run(cause["fixes"][0]["command"], shell=True, check=True)
        assert caller.wait(HANGS) == 0
    finally:
        subprocess.run(["fsfreeze", "-u", below], check=False, stderr=subprocess.DEVNULL)
        for path in (mount, below):
            subprocess.run(["umount", "-l", path], check=False)
        daemon.wait(HANGS)
