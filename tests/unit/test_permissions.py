"""Permission decisions alone, and reading with another user's rights."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fusetools.errors import Error
from fusetools.host.asuser import as_user, exists, may_read_memory, read_input
from fusetools.host.facts import Library, Mount
from fusetools.output import Owner
from fusetools.plan import permissions, probeset
from fusetools.plan.daemons import Target
from fusetools.plan.planner import ProbePlan
from fusetools.record.preflight import check_daemons
from fusetools.record.workload import User

A = Mount("/a", "fuse.a", "a", 45, daemon_pid=100, comm="a")
B = Mount("/b", "fuse.b", "b", 46, daemon_pid=200, comm="b")
SET = probeset.parse(
    "[[group]]\nlibrary='x'\nfunction='(y)'\n[group.operations]\ny='read'\n", "mine.toml"
)
PROBED = ((SET.groups[0], Library("x", "x", 1, "fe:01")),)
NOBODY = Owner(65534, 65534, (65534,), "nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for another user")


def refused(error: pytest.ExceptionInfo[Error]) -> tuple[str, str, str]:
    return error.value.what, error.value.why, error.value.fix


@pytest.mark.parametrize(
    ("connections", "shown", "wanted", "expected"),
    [
        ({45}, True, (A, B), (45,)),
        ({45, 46}, True, (A, B), (45, 46)),
        ({45, None}, True, (A,), (45,)),
        ({None}, False, (A,), (45,)),  # an old kernel: the device alone counts
        ({None}, False, (A, replace(B, daemon_pid=300)), (46,)),  # as it was detected
    ],
)
def test_pid_names_the_mounts_that_it_serves(
    connections: set[int | None], shown: bool, wanted: tuple[Mount, ...], expected: tuple[int, ...]
) -> None:
    assert permissions.served(300, connections, shown, (A, B), wanted) == expected


DETECT = "fusetools record --mount PATH -- …   # detects the daemon"


@pytest.mark.parametrize(
    ("connections", "shown", "wanted", "expected"),
    [
        (
            set(),
            False,
            (A,),
            ("process 300 serves no FUSE mount", "it has not opened /dev/fuse", DETECT),
        ),
        (
            {46},
            True,
            (A,),
            ("process 300 does not serve /a", "it serves /b", "fusetools record --mount /b -- …"),
        ),
        (
            {None},
            True,
            (A,),
            (
                "process 300 serves no FUSE mount",
                "its /dev/fuse belongs to no mount of this host",
                DETECT,
            ),
        ),
        (
            {99},
            True,
            (A,),
            (
                "process 300 serves no FUSE mount",
                "its /dev/fuse belongs to no mount of this host",
                DETECT,
            ),
        ),
        (
            {None},
            False,
            (A, B),
            (
                "which mount process 300 serves is unknown",
                "this kernel does not show it, and several file systems are mounted",
                "fusetools record --mount PATH --pid 300 -- …",
            ),
        ),
    ],
)
def test_pid_of_a_process_that_serves_none_of_them(
    connections: set[int | None],
    shown: bool,
    wanted: tuple[Mount, ...],
    expected: tuple[str, str, str],
) -> None:
    with pytest.raises(Error) as error:
        permissions.served(300, connections, shown, (A, B), wanted)
    assert refused(error) == expected


def test_own_probe_sets_are_for_daemons_that_the_user_may_read() -> None:
    a, b = Target(A, SET, PROBED), Target(B, SET, PROBED)
    permissions.check_probe_set("me", [a, b], {100, 200})
    permissions.check_probe_set("me", [a, Target(B)], {100})
    with pytest.raises(Error) as error:
        permissions.check_probe_set("me", [a, b], {100})
    assert refused(error) == (
        "the probe set mine cannot be used on /b",
        "it can read the memory of b (pid 200), which me, who invoked sudo, may not read",
        "--mount /a   # a daemon of me\n--fs NAME   # a probe set of fusetools",
    )
    with pytest.raises(Error) as error:
        permissions.check_probe_set("me", [b], {100})
    assert error.value.fix == "--fs NAME   # a probe set of fusetools"


def test_a_users_probe_set_is_known_as_that(tmp_path: Path) -> None:
    file = tmp_path / "libfuse.toml"  # as one of fusetools is called
    file.write_text("[[group]]\nlibrary='x'\nfunction='y'\nrole='reply'\n")
    assert probeset.load(file).own
    assert not any(known.own for known in probeset.builtin())


def test_a_probe_set_that_is_nested_too_deeply(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("a=" + "[" * 100_000)
    with pytest.raises(Error, match="cannot read the probe set"):
        probeset.load(file)


@as_root
def test_a_users_file_is_read_with_the_users_rights(tmp_path: Path) -> None:
    """Neither its content nor its existence is revealed."""
    secret = tmp_path / "secret.toml"
    secret.write_text("about = ['hunter2']\n")
    for path in (secret, tmp_path / "none.toml"):  # nobody may not enter pytest's directory
        with pytest.raises(Error) as error:
            probeset.load(path, NOBODY)
        assert refused(error) == (f"cannot read the probe set {path}", "Permission denied", "")
        assert not exists(str(path), NOBODY)
    with pytest.raises(Error, match="mistake in the probe set"):
        probeset.load(secret)
    assert read_input("/etc/passwd", 1 << 20, NOBODY) == Path("/etc/passwd").read_bytes()


def test_unreadable_files_are_errors(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"\xff" * 11)
    assert read_input(str(large), 11, None) == b"\xff" * 11
    os.mkfifo(tmp_path / "fifo")
    for path, why in (
        (large, "larger than 10"),
        (tmp_path / "fifo", "not a file"),
        (tmp_path / "none", "No such file"),
        (f"{tmp_path}/a\0b", "null"),
    ):
        with pytest.raises(OSError, match=why):
            read_input(str(path), 10, None)


@as_root
def test_a_child_keeps_no_other_right() -> None:
    ids = as_user(NOBODY, lambda: f"{os.getresuid()} {os.getresgid()} {os.getgroups()}")
    assert ids == "(65534, 65534, 65534) (65534, 65534, 65534) [65534]"
    status = as_user(NOBODY, lambda: Path("/proc/self/status").read_text()) or ""
    assert "CapPrm:\t0000000000000000\n" in status and "CapEff:\t0000000000000000\n" in status


HIDE = "import ctypes; ctypes.CDLL(None).prctl(4, 0)\n"  # PR_SET_DUMPABLE
EFFECTIVE = "import os; os.setresuid(0, 65534, 0)\n"
GROUP = "import os; os.setgroups([]); os.setresgid(1, 1, 1); os.setresuid(*[65534] * 3)\n"
BECOME = "import os; os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3)\n"


@as_root
@pytest.mark.parametrize(
    ("code", "readable"),
    [
        ("", False),
        (BECOME + "os.execvp('sleep', ['sleep', '1000'])", True),
        (BECOME, False),  # it may still hold root's data
        (EFFECTIVE, False),
        (GROUP + "os.execvp('sleep', ['sleep', '1000'])", False),
        (BECOME + HIDE, False),
    ],
)
def test_memory_access_follows_the_kernels_rules(code: str, readable: bool) -> None:
    """The kernel decides by all of a process's numbers, and by whether it was setuid."""
    wait = "print(flush=True); import time; time.sleep(1000)"
    before, _, exec_ = code.partition("os.execvp")
    script = before + (f"print(flush=True); os.execvp{exec_}" if exec_ else wait)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.read(1)
            while exec_ and Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
                pass
            assert may_read_memory(process.pid, NOBODY) is readable
        finally:
            process.kill()
    assert not may_read_memory(process.pid, NOBODY)


def test_a_daemon_that_ended_while_all_was_armed() -> None:
    """Its number belongs to another process now, which nobody has checked."""
    mine = Mount("/a", "fuse.a", "a", 45, daemon_pid=os.getpid(), comm="a")
    plan = ProbePlan((Target(mine), Target(replace(mine, daemon_pid=None))), (), ())
    assert check_daemons(plan, None, True) == []
    with pytest.raises(Error, match=f"the daemon of /a, process {os.getpid()}, has ended"):
        check_daemons(plan, User(65534, 65534, "nobody", "/", "/bin/sh", (65534,)), False)


def test_a_daemon_that_has_ended() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    mount = Mount("/a", "fuse.a", "a", 45, daemon_pid=process.pid, comm="a")
    said = f"the daemon of /a, process {process.pid}, has ended"
    with pytest.raises(Error, match=said) as error:
        check_daemons(ProbePlan((Target(mount),), (), ()), None, False)
    assert error.value.fix.startswith("umount /a ")
    # Beside others nobody asked for this mount: autofs may have unmounted it.
    both = ProbePlan((Target(mount), Target(replace(mount, daemon_pid=os.getpid()))), (), ())
    assert check_daemons(both, None, False) == [mount]
    with pytest.raises(Error, match=said):
        check_daemons(both, None, True)
