"""`fusetools stuck` on mounts that really hang, each in its own way.

The daemon (hangfs.c) prints the threads that must be found.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mounts
import pytest
from hanging import LONG, Hang, looked_at, set_to_one, stuck
from mounts import wait_until
from recording import run

from fusetools.host import fusectl

pytestmark = [
    pytest.mark.live,
    pytest.mark.unrecorded,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and look at others"),
]


def test_a_quiet_mount(hang: Hang) -> None:
    mount = hang("quiet")
    assert not (mount.path / "x").exists()
    found = looked_at(mount)
    assert (found["state"], found["waiting"], found["causes"]) == ("quiet", 0, [])


def test_a_busy_mount_is_not_stuck(hang: Hang) -> None:
    mount = hang("quiet")
    script = f"while :; do stat {mount.path}/d1/x 2>/dev/null; done"
    with subprocess.Popen(["sh", "-c", script]) as busy:
        try:
            for _ in range(5):
                status, result = stuck("--mount", mount.path)
                assert status == 0
                assert result["mounts"][0]["state"] in ("busy", "quiet")
        finally:
            busy.kill()


def test_callers_and_their_ages(hang: Hang) -> None:
    """Each caller has its command, path and system call; ages agree with this process's clock."""
    mount = hang("lost")
    mount.call("one", "two")
    time.sleep(1.5)
    before = time.monotonic()
    _, result = stuck("--mount", mount.path)
    after = time.monotonic()
    (found,) = result["mounts"]
    assert found["waiting"] == 2
    assert {(c["comm"], c["path"], c["user"]) for c in found["callers"]} == {
        ("stat", f"{mount.path}/d0/one", "root"),
        ("stat", f"{mount.path}/d1/two", "root"),
    }
    for caller in found["callers"]:
        least = before - mount.began[caller["pid"]]
        most = after - mount.began[caller["pid"]]
        assert 0.9 * least <= caller["age_seconds"] <= 1.1 * most
    (cause,) = found["causes"]
    assert cause["kind"] == "unanswered"


def mounted_fusectl() -> list[str]:
    """Return the mounts of fusectl. Other tests mount other file systems meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if " - fusectl " in line]


def test_requests_are_counted_before_linux_5_2(hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsopen(2), on a host where fusectl is not mounted."""
    mount = hang("mutex")
    mount.call("one", "two")
    before = mounted_fusectl()
    monkeypatch.setattr(fusectl, "reachable", lambda *_: [])
    monkeypatch.setattr(fusectl, "FSOPEN", 1 << 20)
    with fusectl.fusectl() as (place, directory):
        assert place == "" and directory is not None
        assert fusectl.counter(directory, mount.connection, "waiting") == 2
    assert mounted_fusectl() == before


def test_two_mutexes(hang: Hang) -> None:
    mount = hang("mutexes")
    mount.call("one", "two", "three")
    found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["kind"] == "deadlock"
    threads = sorted(mount.thread(name) for name in ("first", "second"))
    assert str(threads[0]) in cause["text"] and str(threads[1]) in cause["text"]
    assert len(found["causes"]) == 1  # reported once, from either side


@pytest.mark.parametrize(
    ("pattern", "holder", "kind"), [("mutex", "holder", "mutex"), ("rwlock", "writer", "rwlock")]
)
def test_a_lock_that_is_held(hang: Hang, pattern: str, holder: str, kind: str) -> None:
    mount = hang(pattern)
    mount.call("one", "two", "three")
    found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["kind"] == "lock"
    assert cause["text"].startswith(f"a {kind} is held by hangfs (thread {mount.thread(holder)})")
    waiting = [t for t in found["threads"] if t["holder"] == mount.thread(holder)]
    assert len(waiting) == 2
    assert all("hang" in t["user_stack"] for t in waiting)


def test_a_condition_that_nobody_signals(hang: Hang) -> None:
    mount = hang("condition")
    mount.call("one")
    found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["kind"] == "condition"
    assert f"thread {mount.thread('waits')}" in cause["text"]
    assert all(thread["holder"] is None for thread in found["threads"])
    (waits,) = [t for t in found["threads"] if t["tid"] == mount.thread("waits")]
    assert "hang" in waits["user_stack"]


def test_a_reload_that_does_not_end(hang: Hang) -> None:
    """As in CernVM-FS, whose loader blocks requests meanwhile."""
    mount = hang("reload")
    mount.call("one", "two")
    found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["kind"] == "reload"
    assert "hangfs is being reloaded" in cause["text"]


def test_a_server_that_does_not_answer(hang: Hang) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        mount = hang("connect", str(port))
        mount.call("one", "two")
        found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["kind"] == "lock"
    assert f"held by hangfs (thread {mount.thread('holder')})" in cause["text"]
    name = Path("/proc/self/comm").read_text().strip()
    state = "(tcp, ESTABLISHED, not accepted yet)"
    assert f"127.0.0.1:{port} of {name} (pid {os.getpid()}) {state}" in cause["text"]


def test_a_thread_that_polls_a_thousand_times_a_second(hang: Hang) -> None:
    """As in CernVM-FS, whose thread is mostly awake; the answer is the same at each look."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        peer = f"127.0.0.1:{server.getsockname()[1]}"
        mount = hang("download", peer.rpartition(":")[2])
        mount.call("one", "two", "three")
        connection, _ = server.accept()
        begin = time.monotonic()
        with connection:
            time.sleep(LONG)
            looks = [
                looked_at(mount),
                *(stuck("--mount", mount.path)[1]["mounts"][0] for _ in range(9)),
            ]
        longest = time.monotonic() - begin
    for found in looks:
        assert [cause["reason"]["code"] for cause in found["causes"]] == ["hang_server"]
        reason = found["causes"][0]["reason"]
        assert (reason["subject"]["peer"], reason["subject"]["wanted"]) == (peer, "a download")
        assert (reason["subject"]["operation"], reason["figures"]["callers"]) == ("stat", 3)
        assert reason["subject"]["tid"] == mount.thread("downloads")
        assert LONG * 1e9 <= reason["figures"]["silent_ns"] <= (longest + 1) * 1e9


def test_a_reload_that_is_paused(hang: Hang) -> None:
    """The daemon handles the signal that ends it: the callers continue."""
    mount = hang("paused")
    mount.call("one")
    found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["reason"]["code"] == "hang_reload_paused"
    assert cause["fixes"][0]["command"] == f"kill -USR1 {mount.daemon.pid}"


def test_a_daemon_that_waits_for_its_own_mount(hang: Hang) -> None:
    mount = hang("own")
    mount.call("one")
    found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["kind"] == "own_mount"
    assert "waits for its own mount" in cause["text"]
    assert f"{mount.path}/d9/inner" in cause["text"]


def test_two_daemons_that_wait_for_each_other(hang: Hang, tmp_path: Path) -> None:
    first = hang("path", str(tmp_path / "mount1" / "d1" / "x"))
    second = hang("path", str(tmp_path / "mount0" / "d2" / "x"))
    first.call("one")
    found = looked_at(first)
    cause = found["causes"][0]
    assert cause["kind"] == "own_mount"
    assert str(first.path) in cause["text"] and str(second.path) in cause["text"]


@pytest.mark.parametrize("pattern", ["child", "pipe"])
def test_a_process_that_the_daemon_waits_for(hang: Hang, pattern: str) -> None:
    mount = hang(pattern)
    mount.call("one")
    found = looked_at(mount)
    cause = found["causes"][0]
    assert cause["kind"] == "process"
    assert f"pid {mount.thread('child')}" in cause["text"]
    os.kill(mount.thread("child"), signal.SIGSTOP)
    cause = looked_at(mount)["causes"][0]
    assert f"(pid {mount.thread('child')}), which hangfs waits for, is stopped" in cause["text"]
    assert cause["fixes"][0]["command"] == f"kill -CONT {mount.thread('child')}"


def test_a_daemon_that_is_stopped(hang: Hang) -> None:
    """The same holds while nobody waits: the next caller would."""
    mount = hang("quiet")
    os.kill(mount.daemon.pid, signal.SIGSTOP)
    wait_until(lambda: "T (stopped)" in Path(f"/proc/{mount.daemon.pid}/status").read_text(), "T")
    found = looked_at(mount)
    assert found["causes"][0]["kind"] == "stopped"
    command = found["causes"][0]["fixes"][0]["command"]
    mount.call("x")
    assert looked_at(mount)["callers"][0]["path"].endswith("/d0/x")
    subprocess.run(command.split(), check=True)  # the fix works
    wait_until(lambda: mount.callers[0].poll() is not None, "the caller's answer")


def test_a_daemon_whose_cgroup_is_frozen(hang: Hang, tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "cgroup2", "none", root], capture_output=True)
    if mounted.returncode:
        pytest.skip("this kernel has no cgroup v2")
    mount = hang("quiet")
    group = root / f"fusetools-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(mount.daemon.pid))
        (group / "cgroup.freeze").write_text("1")
        wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), "a frozen cgroup")
        mount.call("x")
        found = looked_at(mount)
        assert found["causes"][0]["kind"] == "frozen"
        command = found["causes"][0]["fixes"][0]["command"]
        subprocess.run(["sh", "-c", command], check=True)
        wait_until(lambda: mount.callers[0].poll() is not None, "the caller's answer")
    finally:
        (group / "cgroup.freeze").write_text("0")
        (root / "cgroup.procs").write_text(str(mount.daemon.pid))
        group.rmdir()
        subprocess.run(["umount", root], check=True)


def test_a_full_background_list(hang: Hang) -> None:
    """One request fills it: the readahead of a file that is never answered."""
    mount = hang("quiet")
    set_to_one(mount.connection, "max_background")
    # Start the second after the first waits: two at the same moment both exceed the limit. It does
    # not open the file itself, which would wait for the first one's page.
    script = """
import os, sys
file = os.open(sys.argv[1], 0)
first = os.getpid()
if not os.fork():
    def waits():
        state = open(f"/proc/{first}/stat").read().rpartition(")")[2].split()[0]
        return state == "D" and "vfs_read" in open(f"/proc/{first}/stack").read()
    while not waits(): pass
os.pread(file, 1, (1 << 19) * (os.getpid() != first))
"""
    caller = mount.run(sys.executable, "-c", script, mount.path / "file")
    found = looked_at(mount)
    cause = found["causes"][0]
    text = "the background list is full (1 request): 1 caller cannot even send theirs"
    assert (cause["kind"], cause["text"]) == ("background", text)
    assert found["waiting"] == 2  # the kernel also counts requests that it could not send yet
    paths = [call["path"] for call in found["callers"]]
    assert paths == [f"{mount.path}/file"] * 2
    assert caller.pid in [call["pid"] for call in found["callers"]]


def test_requests_that_went_past_the_limit_of_the_background_list(hang: Hang) -> None:
    """Two that begin at the same moment both pass, one time in five: the unsent request is
    reported, and so are callers that could not even make one."""
    script = """
import os, sys, time
file = os.open(sys.argv[1], 0)
moment = time.monotonic_ns() + 3_000_000
place = (1 << 19) * (not os.fork())
cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, [cpus[-1 if place else 0]])
while time.monotonic_ns() < moment: pass
os.pread(file, 1, place)
"""

    def stacks(first: int) -> list[str]:
        children = Path(f"/proc/{first}/task/{first}/children")
        wait_until(lambda: bool(children.read_text()), "its child")
        both = [Path(f"/proc/{pid}/stack") for pid in (first, children.read_text().strip())]
        wait_until(lambda: all("vfs_read" in path.read_text() for path in both), "two callers")
        return [path.read_text() for path in both]

    for last in (*[False] * 9, True):
        mount = hang("quiet")
        set_to_one(mount.connection, "max_background")
        caller = mount.run(sys.executable, "-c", script, mount.path / "file")
        if last or not any("get_req" in stack for stack in stacks(caller.pid)):
            break
        mount.close()
    found = looked_at(mount)
    assert len(found["callers"]) == found["waiting"] == 2
    held = any("fuse_get_req" in call["stack"] for call in found["callers"])
    more = "1 caller cannot even send theirs" if held else "1 request more cannot be sent"
    text = f"the background list is full (1 request): {more}"
    full, unanswered = found["causes"]
    assert full["text"] == text
    assert unanswered["reason"]["code"] == "hang_unanswered"
    assert unanswered["reason"]["subject"]["part"] == "sent"


def test_a_killed_daemon_whose_device_another_process_holds(hang: Hang) -> None:
    """The child of hangfs has its parent's /dev/fuse, in another mount namespace."""
    mount = hang("child")
    mount.call("one")
    child = mount.thread("child")
    os.kill(mount.daemon.pid, signal.SIGKILL)
    mount.daemon.wait()
    try:
        mount.call("two")
        found = looked_at(mount)
        assert found["daemon"] == child
        assert found["causes"][0]["kind"] in ("unread", "sleep")
        assert "unread" in [cause["kind"] for cause in found["causes"]]
    finally:
        os.kill(child, signal.SIGKILL)


def test_many_callers_and_threads(hang: Hang) -> None:
    """200 callers, and a daemon with more than 100 threads: all are listed."""
    mount = hang("condition")
    for _ in range(20):
        for number in range(10):
            path = str(mount.path / f"d{number}" / "x")
            mount.callers.append(
                subprocess.Popen(
                    ["stat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
    wait_until(lambda: all(waits(c.pid) for c in mount.callers), "200 callers that wait")
    found = looked_at(mount)
    assert len(found["callers"]) == 200


def waits(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text() not in ("", "0")
    return False


def test_an_sftp_server_that_is_stopped(tmp_path: Path) -> None:
    """Below sshfs: the mount hangs because a process at the end of a pipe is stopped."""
    server = "/usr/lib/openssh/sftp-server"
    if not shutil.which("sshfs") or not Path(server).exists():
        pytest.skip("no sshfs, or no sftp-server")
    (tmp_path / "tree").mkdir()
    (tmp_path / "mount").mkdir()
    script = tmp_path / "ssh"
    pid = tmp_path / "pid"
    script.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec {server}\n")
    script.chmod(0o755)
    path = tmp_path / "mount"
    options = ["-o", f"ssh_command={script}", "-f", "-o", "dir_cache=no"]
    with subprocess.Popen(
        ["sshfs", *options, f"there:{tmp_path}/tree", path], preexec_fn=mounts.end_with_the_test
    ) as daemon:
        child = None
        try:
            wait_until(lambda: mounts.mount_entry(path) is not None, "the mount")
            wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), "the server")
            child = int(pid.read_text())
            os.stat(path)  # both have begun
            time.sleep(
                LONG
            )  # the thread that reads the server's answers has waited since long before the call
            os.kill(child, signal.SIGSTOP)
            caller = subprocess.Popen(["stat", path / "x"], stderr=subprocess.DEVNULL)
            time.sleep(LONG)
            status, result = stuck("--mount", path)
            (found,) = result["mounts"]
            assert status == 3
            assert f"sftp-server (pid {child})" in found["causes"][0]["text"]
            assert "is stopped" in found["causes"][0]["text"]
            command = found["causes"][0]["fixes"][0]["command"]
            subprocess.run(command.split(), check=True)
            caller.wait(mounts.HANGS)
        finally:
            if child is not None:
                os.kill(child, signal.SIGCONT)
            subprocess.run(["umount", "-l", path], check=False)
            daemon.kill()


@contextlib.contextmanager
def automounter(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Run autofsd.py on a path, with a caller that waits for the automount."""
    if "autofs" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no autofs")
    path.mkdir()
    command = [sys.executable, str(Path(__file__).with_name("autofsd.py")), str(path), how]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=mounts.end_with_the_test
    ) as daemon:
        assert daemon.stdout is not None
        try:
            assert daemon.stdout.readline() == "mounted\n"
            with subprocess.Popen(["stat", path / "sft.cern.ch" / "x"]) as caller:
                try:
                    wait_until(lambda: in_autofs(caller.pid), "the caller in autofs")
                    time.sleep(LONG)
                    yield daemon
                finally:
                    caller.kill()
        finally:
            daemon.kill()
            subprocess.run(["umount", "-l", path], check=False)


def in_autofs(pid: int) -> bool:
    return Path(f"/proc/{pid}/wchan").read_text().startswith("autofs")


def of_autofs(path: Path) -> dict[str, Any]:
    status, result = stuck("--mount", path)
    (found,) = result["mounts"]
    assert (status, found["fstype"], found["path"]) == (3, "autofs", str(path))
    (cause,) = found["causes"]
    assert cause["kind"] == "autofs"
    assert f"autofs waits for its daemon to mount {path}/sft.cern.ch/x: " in cause["text"]
    (caller,) = found["callers"]
    assert caller["comm"] == "stat" and caller["path"] == f"{path}/sft.cern.ch/x"
    assert not any("abort" in fix["command"] for fix in cause["fixes"])
    return {**cause, "daemon": found["daemon"]}


def test_autofs_whose_daemon_is_stopped(tmp_path: Path) -> None:
    with automounter(tmp_path / "auto", "never") as daemon:
        daemon.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{daemon.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "its stop")
        cause = of_autofs(tmp_path / "auto")
        assert cause["daemon"] == daemon.pid
        assert f"(pid {daemon.pid}) is stopped (SIGSTOP)" in cause["text"]
        assert cause["fixes"][0]["command"] == f"kill -CONT {daemon.pid}"


def test_autofs_whose_daemon_waits_for_its_helper(tmp_path: Path) -> None:
    with automounter(tmp_path / "auto", "child") as daemon:
        assert daemon.stdout is not None
        child = int(daemon.stdout.readline())
        try:
            cause = of_autofs(tmp_path / "auto")
        finally:
            os.kill(child, signal.SIGKILL)
        assert f"waits for sleep (pid {child}), which sleeps in" in cause["text"]


def test_autofs_for_which_nobody_waits_is_not_shown(tmp_path: Path) -> None:
    with automounter(tmp_path / "auto", "never"):
        pass
    _, result = stuck()
    assert not [one for one in result["mounts"] if one["fstype"] == "autofs"]


def test_doctor_names_the_mount_that_hangs(hang: Hang) -> None:
    mount = hang("lost")
    mount.call("one")
    time.sleep(LONG)
    text = " ".join(run("doctor").stdout.split())
    assert f"Hanging now: {mount.path}; fusetools stuck shows why" in text


def test_the_text_on_80_columns(hang: Hang) -> None:
    mount = hang("mutex")
    mount.call("one", "two")
    time.sleep(LONG)
    done = run("stuck", "--mount", mount.path)
    assert done.returncode == 3
    assert "STUCK: 2 requests in flight, 2 callers blocked" in " ".join(done.stdout.split())
    assert f"held by hangfs (thread {mount.thread('holder')})" in " ".join(done.stdout.split())
    assert f"kill -9 {mount.daemon.pid}" in done.stdout
    prose = [line for line in done.stdout.splitlines() if "/" not in line]
    assert max(map(len, prose)) <= 80
