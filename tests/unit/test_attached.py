"""Attaching to a running process: which processes are allowed, and which threads belong to it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from fusetools.errors import Error
from fusetools.host.files import Files
from fusetools.host.processes import status
from fusetools.record.attached import Attached, ranges
from fusetools.record.workload import User


def why(pid: int, user: User | None = None) -> str:
    with pytest.raises(Error) as caught:
        Attached(pid, user)
    assert caught.value.what == f"cannot record process {pid}"
    return f"{caught.value.why}; {caught.value.fix}"


def test_attach_refuses_other_processes(tmp_path: Path) -> None:
    number = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert why(number + 1) == "there is no such process; ps -ef   # lists processes"
    for ancestor in (os.getpid(), os.getppid()):
        assert why(ancestor).startswith("this recording is one of the processes that descend from")
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert why(ended.pid).startswith("it has ended; ")


def test_a_thread_is_no_process() -> None:
    code = "import threading as t; t.Thread(target=input).start(); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        tids = {int(name) for name in os.listdir(f"/proc/{process.pid}/task")}
        (thread,) = tids - {process.pid}
        assert why(thread) == (
            f"it is a thread of process {process.pid}; fusetools record --attach {process.pid}"
        )
        held = {n for a, b in Attached(process.pid, None).numbers() for n in range(a, b + 1)}
        assert held >= tids
        process.kill()


def test_the_kernels_own_threads() -> None:
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    states = {pid: status(Files(Path("/")), pid) for pid in pids}
    kernels = [pid for pid, state in states.items() if state and state.of_kernel]
    links = {pid for pid in pids if not os.path.lexists(f"/proc/{pid}/exe")}
    if not kernels:
        pytest.skip("a pid namespace: threads of the kernel are not seen")
    assert "kthreadd" in {Path(f"/proc/{pid}/comm").read_text().strip() for pid in kernels}
    assert set(kernels) <= links or os.geteuid() == 0
    assert why(kernels[0]) == "it is a thread of the kernel; fusetools record   # all callers"


def test_only_the_callers_of_sudo_own_processes() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            mine = User(os.geteuid(), 0, "me", "/", "/bin/sh", ())
            assert not Attached(process.pid, mine).ended
            theirs = User(os.geteuid() + 1, 0, "ghost", "/", "/bin/sh", ())
            name = pwd.getpwuid(os.geteuid()).pw_name
            assert why(process.pid, theirs) == (
                f"it belongs to {name}, and ghost invoked sudo; "
                f"sudo fusetools record --as-root --attach {process.pid}"
            )
        finally:
            process.kill()


def test_descendants_are_taken_up() -> None:
    with subprocess.Popen(
        ["sh", "-c", "read x; sleep 1000 & read x"], stdin=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        of = Attached(process.pid, None)

        def children() -> tuple[int, ...]:
            of.look()
            return of.descendants

        assert children() == ()
        process.stdin.write("\n")
        process.stdin.flush()
        while not children():
            pass
        (child,) = children()
        comm = Path(f"/proc/{child}/comm")
        while comm.read_text() != "sleep\n":
            pass
        assert any(row[0] == child and row[4].endswith("sleep") for row in of.maps())
        process.kill()
        process.wait()
        assert of.ended
        os.kill(child, 9)


def test_an_ended_first_thread_is_no_end() -> None:
    """The other threads continue: the process exists."""
    code = (
        "import ctypes, threading, time; "
        "threading.Thread(target=time.sleep, args=(1000,)).start(); "
        "print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stat = Path(f"/proc/{process.pid}/stat")
        while ") Z " not in stat.read_text():
            pass
        assert not Attached(process.pid, None).ended
        process.kill()


def test_ranges() -> None:
    assert ranges([], 3) == ()
    assert ranges([7], 3) == ((7, 7),)
    assert ranges([9, 7, 8, 7], 3) == ((7, 9),)
    assert ranges([1, 2, 10, 20, 21, 40], 9) == ((1, 2), (10, 10), (20, 21), (40, 40))
    # The nearest ones are joined.
    assert ranges([1, 2, 10, 20, 21, 40], 3) == ((1, 10), (20, 21), (40, 40))
    assert ranges([1, 2, 10, 20, 21, 40], 1) == ((1, 40),)
