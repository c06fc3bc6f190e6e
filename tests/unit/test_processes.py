"""Processes as the kernel shows them in /proc."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fusetools.host import processes
from fusetools.host.files import Files
from fusetools.host.processes import (
    PERF_EVENT,
    cpu_seconds,
    lowered,
    oom_kills,
    parse_stat,
    patiently,
    read_stat,
    recorders,
    total_cpu_seconds,
    wait_status,
)

HOST = Files(Path("/"))
PR_SET_NAME = 15
PF_KTHREAD = 0x00200000


def test_stat_is_what_the_kernel_answers_otherwise() -> None:
    """Parent, session and CPU time have system calls of their own."""
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    before = os.times()
    own = read_stat(HOST, os.getpid())
    after = os.times()
    assert own and own.state == "R"
    assert (own.parent, own.session) == (os.getppid(), os.getsid(0))
    ticks = os.sysconf("SC_CLK_TCK")
    # The kernel rounds user and system time down separately.
    assert ticks * (before.user + before.system) - 2 <= own.ticks
    assert own.ticks <= ticks * (after.user + after.system) + 2


@pytest.mark.parametrize("name", ["a) R 1 2", "((", " ) ", "x\ny", "\udcff"])
def test_a_name_does_not_hide_the_state(name: str) -> None:
    pid = os.fork()
    if pid == 0:
        raw = name.encode("utf-8", "surrogateescape")
        ctypes.CDLL(None).prctl(PR_SET_NAME, raw, 0, 0, 0)
        time.sleep(10)
        os._exit(0)
    try:
        while (process := read_stat(HOST, pid)) is None or process.comm != name:
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), process
        assert process.parent == os.getpid() and process.state in "RS"
        # Its start, in s since boot, is that of its entry in /proc, within a second.
        boot = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
        made = os.stat(f"/proc/{pid}").st_ctime - boot
        assert abs(process.start / os.sysconf("SC_CLK_TCK") - made) < 60
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert read_stat(HOST, pid) is None


@pytest.mark.parametrize("text", ["", "1 (x) S 1", "1 (x S 1 1", "1 (x) S " + "y " * 60])
def test_malformed_stats_are_none(text: str) -> None:
    assert parse_stat(text) is None


def test_cpu_time_of_a_family(tmp_path: Path) -> None:
    """With children that have ended, and without others."""
    rest = "0 0 0 0 0 0 0 0 0 {} {} {} {} 20 0 1 0 5"
    for pid, parent, ticks in (
        (7, 1, (1, 2, 30, 40)),
        (8, 7, (100, 200, 0, 0)),
        (9, 1, (9, 9, 9, 9)),
    ):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        text = f"{pid} (a) b) S {parent} {rest.format(*ticks)}"
        (tmp_path / f"proc/{pid}/stat").write_text(text + " 0" * 30)
    expected = 373 / os.sysconf("SC_CLK_TCK")
    assert total_cpu_seconds(Files(tmp_path), 7) == expected


def test_cpu_time_of_another_process() -> None:
    """The result equals that of the process itself, and that of its parent after its end."""
    code = (
        "import sys, time\n"
        "while time.process_time() < 0.05: pass\n"
        "print(time.process_time(), flush=True); input(); print(time.process_time(), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        least = float(process.stdout.readline())
        used = cpu_seconds(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        most = float(process.stdout.readline())
        assert 0.05 <= least <= used <= most
    assert cpu_seconds(process.pid) == 0.0


def test_new_recorders_are_found(tmp_path: Path) -> None:
    """Holders of perf's events, and a perf whose files are just being closed; no older ones."""
    rows = {
        10: ("cat", "S", 0, 100, "/dev/null"),
        11: ("monitor", "S", 0, 100, PERF_EVENT),
        12: ("perf", "S", 0, 99, PERF_EVENT),
        13: ("perf", "R", 0, 101, ""),
        14: ("perf", "Z", 0, 101, ""),
        15: ("cat", "R", 0, 101, ""),
        16: ("perf", "I", PF_KTHREAD, 101, ""),
    }
    for pid, (name, state, flags, start, link) in rows.items():
        (tmp_path / f"proc/{pid}/fd").mkdir(parents=True)
        fields = [1, 1, 1, 0, -1, flags, *[0] * 12, start, *[0] * 16, 0]
        (tmp_path / f"proc/{pid}/stat").write_text(
            f"{pid} ({name}) {state} {' '.join(map(str, fields))}\n"
        )
        if link:
            (tmp_path / f"proc/{pid}/fd/3").symlink_to(link)
    assert recorders(Files(tmp_path), 100) == [11, 13]
    assert recorders(Files(tmp_path), 0) == [11, 12, 13]


@pytest.mark.parametrize(
    ("words", "priority"),
    [
        (("nice", "-n", "19"), "nice 19"),
        (("chrt", "--idle", "0"), "SCHED_IDLE"),
        (("chrt", "--batch", "0"), "SCHED_BATCH"),
    ],
)
def test_processes_that_yield_to_others(words: tuple[str, ...], priority: str) -> None:
    command = [*words, sys.executable, "-c", "print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        assert lowered(process.pid) == priority
        process.stdin.write(b"\n")
        process.stdin.close()
        process.stdout.read()
    assert lowered(process.pid) == ""


class Hanging(Files):
    """One file of a process hangs, as its memory map is locked."""

    def read(self, path: str, quiet: bool = False) -> str | None:
        if path == "/proc/1/maps":
            time.sleep(60)
        return super().read(path, quiet)


def test_a_file_that_hangs_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.3)
    own = Path("/proc/self/stat").read_text().split()[0]
    read = patiently(Hanging(Path("/")), f"/proc/{own}/cmdline", "/proc/1/maps", "/proc/version")
    assert read == (Path(f"/proc/{own}/cmdline").read_text(), "", Path("/proc/version").read_text())
    assert patiently(HOST) == ()


def test_files_are_read_by_one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    fork = os.fork

    def counted() -> int:
        made.append(fork())
        return made[-1]

    monkeypatch.setattr(os, "fork", counted)
    assert len(patiently(HOST, *["/proc/version"] * 50)) == 50
    assert len(made) == 1


@pytest.mark.parametrize(("code", "status"), [("exit(3)", 3 << 8), ("os.kill(os.getpid(), 9)", 9)])
def test_the_status_of_a_zombie_and_of_a_process_that_was_reaped(code: str, status: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.read(0, 1); {code}"], stdin=subprocess.PIPE
    )
    descriptor = os.pidfd_open(process.pid)
    assert wait_status(HOST, process.pid, descriptor) is None
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert wait_status(HOST, process.pid, descriptor) == status
    process.wait()
    # From Linux 6.15 on.
    assert wait_status(HOST, process.pid, descriptor) in (status, None)
    os.close(descriptor)
    assert wait_status(HOST, process.pid, -1) is None


def test_processes_that_were_killed_as_memory_was_used_up(tmp_path: Path) -> None:
    assert oom_kills(HOST) >= 0
    (tmp_path / "proc").mkdir()
    assert oom_kills(Files(tmp_path)) == 0
    (tmp_path / "proc/vmstat").write_text("pgfault 7\noom_kill 3\nswap_ra 0\n")
    assert oom_kills(Files(tmp_path)) == 3
