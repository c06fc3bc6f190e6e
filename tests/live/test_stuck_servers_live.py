"""`fusetools stuck` on daemons of unusual shapes (oddfs.py): servers, and holders of file locks."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hanging import LONG, Hang, Hanging, set_to_one, stuck
from mounts import HANGS, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.unrecorded,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount and look at others"),
]


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Hang]:
    """odd(mode) makes such a mount."""
    program = tmp_path / "oddfs"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent}/oddfs.py "$@"\n')
    program.chmod(0o755)
    made: list[Hanging] = []

    def make(mode: str) -> Hanging:
        made.append(Hanging(program, tmp_path / f"mount{len(made)}", mode))
        return made[-1]

    yield make
    for mount in made:
        ended(mount)


def ended(mount: Hanging) -> None:
    set_to_one(mount.connection, "abort")
    mount.daemon.terminate()
    mount.daemon.wait(timeout=HANGS)
    mount.close()


def codes(found: dict[str, Any]) -> list[str]:
    return [cause["reason"]["code"] for cause in found["causes"]]


def seen(mount: Hanging) -> dict[str, Any]:
    time.sleep(LONG)
    status, result = stuck("--mount", mount.path)
    (found,) = result["mounts"]
    assert status == (3 if found["state"] in ("stuck", "unknown") else 0)
    return found  # type: ignore[no-any-return]


def test_a_server_below_a_supervisor_is_stopped(odd: Hang) -> None:
    mount = odd("supervisor")
    server = mount.thread("server")
    os.kill(server, signal.SIGSTOP)
    mount.run("stat", mount.path / "file1")
    found = seen(mount)
    assert (found["daemon"], found["servers"]) == (server, [server])
    reason = found["causes"][0]["reason"]
    assert (reason["code"], reason["subject"]["pid"]) == ("hang_daemon_halted", server)


def test_one_of_two_servers_is_stopped(odd: Hang) -> None:
    """Either may read: the other one continues until its own request hangs."""
    mount = odd("prefork")
    servers = [int(line.split()[1]) for line in mount.output.read_text().splitlines()[:2]]
    assert seen(mount)["servers"] == sorted(servers)
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    mount.run("stat", mount.path / "file1")
    found = seen(mount)
    assert codes(found)[0] == "hang_daemon_halted"
    assert found["causes"][0]["reason"]["subject"]["pid"] in servers


@pytest.mark.parametrize("mode", ["handover", "handover-now"])
def test_a_request_whose_reader_has_ended(odd: Hang, mode: str) -> None:
    """On a busy host a caller may run again after the successor began: its age begins later then,
    and who read the request is not known."""
    found: list[str] = []
    while "hang_older" not in found and len(found) < 5:
        mount = odd(mode)
        mount.run("stat", mount.path / "file-old")
        server = mount.thread("server")
        subprocess.run(["stat", mount.path / "file-new"], check=True, stdout=subprocess.DEVNULL)
        result = seen(mount)
        assert result["daemon"] == server
        found += codes(result)
    assert found[-1] == "hang_older" and {*found} <= {"hang_older", "hang_unanswered"}


def test_a_request_that_its_only_reader_dropped(odd: Hang) -> None:
    """It answers other requests: the fate of this one is unknown."""
    mount = odd("drop")
    mount.run("stat", mount.path / "file-drop")
    subprocess.run(["stat", mount.path / "file1"], check=True, stdout=subprocess.DEVNULL)
    found = seen(mount)
    assert codes(found) == ["hang_unanswered"]
    assert found["causes"][0]["reason"]["figures"]["requests"] == 1


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_file_lock_that_another_caller_holds(odd: Hang, call: str) -> None:
    mount = odd("locks")
    take = f"import fcntl, time; f = open('{mount.path}/file1', 'r+'); fcntl.{call}(f, 2); "
    with subprocess.Popen([sys.executable, "-c", take + "time.sleep(99)"]) as holder:
        try:
            wait_until(lambda: not free(mount.path / "file1", call), "a lock")
            waiter = mount.run(sys.executable, "-c", take)
            found = seen(mount)
            assert (found["state"], found["locked"], found["causes"]) == ("busy", 1, [])
            (wait,) = [c["wait"] for c in found["callers"] if c["pid"] == waiter.pid]
            assert wait["code"] == "wait_callers_lock"
            assert wait["subject"]["holders"] == [f"python3 (pid {holder.pid})"] or wait["subject"][
                "holders"
            ] == [f"python (pid {holder.pid})"]
        finally:
            holder.kill()
    assert waiter.wait(timeout=HANGS) == 0


def test_callers_that_wait_for_each_other_s_file_locks(odd: Hang) -> None:
    mount = odd("locks")
    paths = [str(mount.path / "file1"), str(mount.path / "file2")]
    take = "import fcntl, sys; one, two = [open(path, 'r+') for path in sys.argv[1:]]; "
    take += "fcntl.flock(one, 2); print(flush=True); input(); fcntl.flock(two, 2)"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    callers: list[subprocess.Popen[Any]] = [
        subprocess.Popen([sys.executable, "-c", take, *order], **pipes)
        for order in (paths, paths[::-1])
    ]
    try:
        for caller in callers:  # each holds its first lock
            assert caller.stdout is not None
            caller.stdout.readline()
        for caller in callers:
            assert caller.stdin is not None
            caller.stdin.write("\n")
            caller.stdin.flush()
        found = seen(mount)
        assert (found["state"], codes(found)) == ("stuck", ["hang_file_locks"])
        reason = found["causes"][0]["reason"]
        pids = sorted(int(name.split()[-1].rstrip(")")) for name in reason["subject"]["names"])
        assert pids == sorted(caller.pid for caller in callers)
        assert sorted(reason["subject"]["paths"]) == paths
    finally:  # the daemon obeys no interrupt: only an abort ends killed callers
        set_to_one(mount.connection, "abort")
        for caller in callers:
            caller.kill()
            caller.communicate()


def test_a_caller_that_waits_for_a_file_lock_of_its_own(odd: Hang) -> None:
    """It has the file open twice: each flock(2) is of an open file, not of a process."""
    mount = odd("locks")
    path = str(mount.path / "file1")
    take = "import fcntl, sys; files = [open(sys.argv[1], 'r+') for _ in '12']; "
    waiter = mount.run(sys.executable, "-c", take + "[fcntl.flock(f, 2) for f in files]", path)
    found = seen(mount)
    (wait,) = [c["wait"] for c in found["callers"] if c["pid"] == waiter.pid]
    assert (found["state"], wait["code"]) == ("unknown", "wait_callers_lock")
    assert wait["figures"] == {"openers": 0, "alike": 0, "again": 1}
    waiter.kill()


def free(path: Path, call: str) -> bool:
    with path.open("r+") as file:
        try:
            getattr(fcntl, call)(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        getattr(fcntl, call)(file, fcntl.LOCK_UN)
    return True


def test_a_killed_daemon_whose_thread_stays_in_the_kernel(odd: Hang) -> None:
    mount = odd("killed")
    reader = mount.run("cat", mount.path / "file1")
    thread = mount.thread("invalidates")
    mount.daemon.kill()
    wait_until(
        lambda: Path(f"/proc/{mount.daemon.pid}/stat").read_text().rpartition(")")[2][1] == "Z",
        "the end of its main thread",
    )
    found = seen(mount)
    reason = found["causes"][0]["reason"]
    assert (reason["code"], reason["subject"]["halt"]) == ("hang_daemon_halted", "halt_killed")
    assert reason["subject"]["pid"] == mount.daemon.pid
    assert f"thread {thread} is still in the kernel" in found["causes"][0]["text"]
    reader.kill()


def test_a_connection_that_was_aborted_and_its_daemon_that_lives(odd: Hang) -> None:
    """Found without touching the mount: the daemon's descriptor reports an error afterwards."""
    mount = odd("supervisor")
    assert seen(mount)["state"] == "quiet"
    set_to_one(mount.connection, "abort")
    descriptors = sorted(os.listdir(f"/proc/{mount.thread('mounted')}/fd"))
    status, result = stuck("--mount", mount.path)
    assert (status, result["mounts"][0]["state"]) == (3, "dead")
    assert codes(result["mounts"][0]) == ["hang_dead"]
    assert sorted(os.listdir(f"/proc/{mount.thread('mounted')}/fd")) == descriptors


@pytest.mark.parametrize(("mode", "code"), [("unread", "hang_init"), ("kept", "hang_thread")])
def test_a_mount_that_waits_for_its_first_request(tmp_path: Path, mode: str, code: str) -> None:
    """It is found by the path, which is in no table of mounts yet."""
    log = tmp_path / "log"
    program = Path(__file__).with_name("initfs.py")
    with log.open("w") as out:
        daemon = subprocess.Popen([sys.executable, program, tmp_path, mode], stdout=out)
    try:
        wait_until(lambda: "mounts" in log.read_text() or daemon.poll() is not None, "a mount")
        if "unsupported" in log.read_text():
            pytest.skip("this kernel sends FUSE_INIT after mount(2) (before Linux 6.18)")
        time.sleep(LONG)
        status, result = stuck("--mount", tmp_path)
        (found,) = result["mounts"]
        assert (status, found["state"], codes(found)) == (3, "stuck", [code])
        assert [(c["pid"], c["call"]) for c in found["callers"]] == [(daemon.pid, "mount")]
        if mode == "kept":
            (tid,) = [
                int(line.split()[1]) for line in log.read_text().splitlines() if "keeps" in line
            ]
            assert found["causes"][0]["reason"]["subject"]["tid"] == tid
    finally:
        daemon.kill()
        daemon.wait()


def test_processes_that_wait_for_a_server_before_they_mount(tmp_path: Path) -> None:
    """A mount helper waits for a TCP server, and a client that has loaded libfuse for a name
    server; there is no connection yet."""
    helper = tmp_path / "mount.odd"
    asks = "import socket; s = socket.socket(); s.connect(('127.0.0.1', {})); s.recv(1)"
    query = (
        "import ctypes, socket; ctypes.CDLL('libfuse3.so.3'); "
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', {})); "
        "s.send(b'?'); s.recv(1)"
    )
    with socket.socket() as server, socket.socket(type=socket.SOCK_DGRAM) as names:
        for one in server, names:
            one.bind(("127.0.0.1", 0))
        server.listen()
        port, dns = server.getsockname()[1], names.getsockname()[1]
        helper.write_text(f'#!/bin/sh\n{sys.executable} -c "{asks.format(port)}"\ntrue\n')
        helper.chmod(0o755)
        waits = [sys.executable, "-c", query.format(dns), "source", "/mnt/even", "-o", "rw"]
        with (
            subprocess.Popen(waits) as client,
            subprocess.Popen([helper, "source", "/mnt/odd"]) as mounter,
        ):
            try:
                time.sleep(LONG)
                _, result = stuck()
            finally:
                client.kill()
                server.close()  # ends all processes below the helper
            by_pid = {one["pid"]: one for one in result["mounting"]}
            direct, found = by_pid[client.pid], by_pid[mounter.pid]
            assert (direct["path"], found["path"]) == ("/mnt/even", "/mnt/odd")
            for one, address in (direct, f"127.0.0.1:{dns} (udp"), (found, f"127.0.0.1:{port}"):
                subject = one["reason"]["subject"]
                assert subject["wait"] == "wait_descriptor" and address in subject["doing"]
            assert direct["reason"]["subject"]["sign"] == "library"


def test_stuck_shows_a_clients_own_status(tmp_path: Path) -> None:
    """Asked on its socket; the mount hangs, and is not touched."""
    program = tmp_path / "client"
    here = Path(__file__).parent
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {here}/talkative.py "$@"\n')
    program.chmod(0o755)
    mount = Hanging(program, tmp_path / "mount", str(tmp_path / "cvmfs_io.x"))
    try:
        mount.run("stat", mount.path / "file-drop")
        found = seen(mount)
        told = {row["command"]: row["text"] for row in found["client"]}
        assert told["proxy info"].endswith("Active proxy: [0] http://127.0.0.1:3128")
        assert told["parameters"] == "CVMFS_QUOTA_LIMIT=4000"
        assert set(told) == {"proxy info", "cache size", "parameters"}
        done = subprocess.run(
            [sys.executable, "-m", "fusetools", "doctor"],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert "client: Active proxy: [0] http://127.0.0.1:3128" in done.stdout
    finally:
        ended(mount)
