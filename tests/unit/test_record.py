"""Parts of recording that need no root."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from mounts import wait_until

from fusetools.errors import Error
from fusetools.host.cgroup import perf_hierarchy
from fusetools.host.files import Files
from fusetools.host.processes import started
from fusetools.plan.events import Event
from fusetools.plan.filters import condition
from fusetools.record import graceperiods, instance
from fusetools.record.perf import Perf
from fusetools.record.program import Program
from fusetools.record.state import (
    LONG,
    MOST_AT_ONCE,
    NUMBERS,
    ROOTS,
    Lock,
    Recordings,
    State,
    clean,
)
from fusetools.record.workload import Workload, caller, environment_of
from fusetools.session import BYTES, Session, encoded


def test_caller() -> None:
    assert caller({}) is None
    assert caller({"SUDO_UID": "0", "SUDO_GID": "0"}) is None
    for uid, gid in (("x", "0"), ("1000", ""), ("9" * 30, "1"), ("4294967295", "1"), ("-1", "1")):
        with pytest.raises(Error):  # and not as root
            caller({"SUDO_UID": uid, "SUDO_GID": gid})
    user = caller({"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "x"})
    assert user is not None and user.name == "nobody" and 65534 in user.groups
    user = caller({"SUDO_UID": "123456", "SUDO_GID": "99", "SUDO_USER": "ghost"})
    assert user is not None
    assert (user.name, user.home, user.groups) == ("ghost", "/", (99,))
    assert environment_of(user, {"SUDO_UID": "123456", "HOME": "/root", "A": "b"}) == {
        "A": "b",
        "HOME": "/",
        "USER": "ghost",
        "LOGNAME": "ghost",
        "SHELL": "/bin/sh",
    }
    assert environment_of(None, {"HOME": "/root"}) == {"HOME": "/root"}


def test_workload_waits_until_it_is_started(tmp_path: Path) -> None:
    file = tmp_path / "x"
    workload = Workload(["sh", "-c", f"echo $A > {file}; exit 3"], None, {**os.environ, "A": "b"})
    assert not workload.poll()
    assert not file.exists()
    workload.start()
    workload.wait()
    assert workload.exit_status == 3
    assert file.read_text() == "b\n"


def test_workload_ended_by_a_signal() -> None:
    workload = Workload(["sh", "-c", "kill -9 $$"], None, os.environ)
    workload.start()
    workload.wait()
    assert workload.exit_status == 128 + signal.SIGKILL


def test_workload_that_cannot_run(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("no interpreter")
    for name, number in (("/no/such", errno.ENOENT), (str(script), errno.EACCES)):
        workload = Workload([name], None, os.environ)
        with pytest.raises(Error) as caught:
            workload.start()
        assert name in caught.value.what
        if number != errno.ENOENT:
            assert caught.value.why == os.strerror(number)


def test_workload_that_is_never_started() -> None:
    workload = Workload(["sleep", "60"], None, os.environ)
    workload.abandon()
    assert workload.exit_status == 127


def test_recordings_run_beside_each_other(tmp_path: Path) -> None:
    with Lock(["fusetools", "top"], tmp_path) as first, Lock(["fusetools"], tmp_path) as second:
        assert (first.number, second.number) == (0, 1)
        assert second.beside() == [f"pid {os.getpid()}: fusetools top"]
        first.state.processes = [(4711, 1)]
        first.write()
        assert (first.theirs(), second.theirs()) == (set(), {4711})
        assert second.clean().what == ()  # the first runs
        assert first.directory.joinpath("state.json").exists()
        with pytest.raises(Error) as caught:
            second.stay_alone()
        assert caught.value.what == "another recording is running"
        assert caught.value.why == f"pid {os.getpid()}: fusetools top"


def test_another_recording_s_long_command_is_cut(tmp_path: Path) -> None:
    words = ["fusetools", "record", "--", "stat", *(f"/mnt/file-{n}" for n in range(10_000))]
    with Lock(words, tmp_path), Lock(["fusetools"], tmp_path) as second:
        (line,) = second.beside()
        assert line.startswith(f"pid {os.getpid()}: fusetools record -- stat /mnt/file-0 ")
        assert line.endswith("…") and len(line) <= LONG
        with pytest.raises(Error) as caught:
            second.stay_alone()
        assert caught.value.why == line


def test_more_recordings_than_there_are_numbers(tmp_path: Path) -> None:
    with contextlib.ExitStack() as held:
        for number in range(MOST_AT_ONCE):
            assert held.enter_context(Lock(["fusetools", "top"], tmp_path)).number == number
        with pytest.raises(Error, match="another recording is running"):
            Lock(["fusetools"], tmp_path)


def test_users_do_not_lock_root_or_one_another_out(tmp_path: Path) -> None:
    with contextlib.ExitStack() as held:
        numbers = set()
        for uid in (1000, 1001):
            for _ in range(MOST_AT_ONCE):
                lock = held.enter_context(Lock(["fusetools"], tmp_path, uid=uid))
                numbers.add(lock.number)
            with pytest.raises(Error, match="another recording is running"):
                Lock(["fusetools"], tmp_path, uid=uid)
        assert len(numbers) == 2 * MOST_AT_ONCE and min(numbers) == ROOTS
        with Lock(["fusetools"], tmp_path) as roots, Lock(["fusetools"], tmp_path, uid=7) as other:
            assert (roots.number, other.number) == (0, ROOTS + 2 * MOST_AT_ONCE)
    with contextlib.ExitStack() as held:  # all of them together do not suffice
        for number in range(NUMBERS - ROOTS):
            held.enter_context(Lock(["fusetools"], tmp_path, uid=1 + number % 40))
        with pytest.raises(Error):
            Lock(["fusetools"], tmp_path, uid=100)
        with Lock(["fusetools"], tmp_path) as roots:
            assert roots.number == 0


def test_clean_works_however_many_record(tmp_path: Path) -> None:
    folder = tmp_path / "9/perf.0123abcd"
    with Lock(["fusetools"], tmp_path, uid=1000), Lock(["fusetools"], tmp_path, uid=1000) as killed:
        killed.state.folders = [folder.name]
        killed.write()
    folder.mkdir()
    with contextlib.ExitStack() as held:
        for _ in range(MOST_AT_ONCE):
            held.enter_context(Lock(["fusetools", "top"], tmp_path))
        held.enter_context(Lock(["fusetools"], tmp_path, uid=1000))
        with Recordings(tmp_path) as recordings:
            assert recordings.clean().what == (str(folder),)
            assert len(recordings.beside()) == MOST_AT_ONCE + 1
    with Lock(["fusetools"], tmp_path) as alone:
        alone.stay_alone()
        with Recordings(tmp_path) as recordings:
            assert recordings.clean().what == ()
            assert len(recordings.beside()) == 1


def test_an_exclusive_recording_names_the_other(tmp_path: Path) -> None:
    with Lock(["fusetools"], tmp_path):
        pass
    with Lock(["fusetools", "record", "--", "find"], tmp_path) as first:
        assert not first.stay_alone()
        with pytest.raises(Error) as caught:
            Lock(["fusetools", "record"], tmp_path)
    assert caught.value.what == "another recording is running"
    assert caught.value.why == f"pid {os.getpid()}: fusetools record -- find"
    with Lock(["fusetools"], tmp_path):  # and now it is free
        pass


@pytest.mark.parametrize("alone", [False, True])
def test_lock_waits_for_who_is_in_the_way(tmp_path: Path, alone: bool) -> None:
    """Each of the two requires to be alone."""
    heard: list[str] = []
    first = Lock(["fusetools", "record", "--", "find"], tmp_path)
    if not alone:
        first.stay_alone()

    def let_go(text: str) -> None:
        heard.append(text)
        threading.Timer(0.2, first.__exit__).start()

    with Lock(["fusetools", "record"], tmp_path, let_go) as second:
        assert second.stay_alone() == alone
        assert second.number == 0
        assert heard == [
            f"waiting for another recording: pid {os.getpid()}: fusetools record -- find"
        ]
        with pytest.raises(Error):
            Lock(["fusetools"], tmp_path)


def test_lock_without_permission(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(Error) as caught:
        Lock(["fusetools"], blocked)
    if os.geteuid():
        assert caught.value.what == "needs root"
        assert caught.value.fix.startswith("sudo fusetools ")
    else:
        assert caught.value.fix == f"rm -r {blocked}"


def test_clean_removes_exactly_what_is_noted(tmp_path: Path) -> None:
    ours, others = tmp_path / "run/0/perf.0123abcd", tmp_path / "run/0/perf.others_"
    with Lock(["fusetools"], tmp_path / "run") as lock:
        lock.state.folders = [ours.name, "perf.00000000"]
        lock.write()
    ours.mkdir()
    others.mkdir()
    (ours / "file").touch()
    with Lock(["fusetools"], tmp_path / "run") as lock:
        assert lock.leftover is not None
        removed = lock.clean()
    assert removed.what == (str(ours),)
    assert not ours.exists() and others.exists()
    with Lock(["fusetools"], tmp_path / "run") as lock:
        assert lock.leftover is None


@pytest.mark.parametrize("name", ["fusetools_0123abcd", ""])
def test_the_note_names_an_instance_of_ours(name: str) -> None:
    assert State.from_json(asdict(State(instance=name))) == State(instance=name)


@pytest.mark.parametrize(
    "name", ["others", "../tracing", "fusetools_0123abcd/..", "fusetools_0123ABCD", "."]
)
def test_the_note_names_no_other_instance(name: str) -> None:
    with pytest.raises(ValueError):
        State.from_json(asdict(State(instance=name)))


def instance_of(root: Path, name: str) -> Path:
    """A folder that resembles an instance, as far as files can."""
    path = root / "instances" / name
    for folder in ("events/fuse/send", "per_cpu/cpu0"):
        (path / folder).mkdir(parents=True)
    for file in ("tracing_on", "trace_clock", "buffer_size_kb", "trace_options"):
        (path / file).touch()
    for file in ("enable", "fuse/send/filter", "fuse/send/enable"):
        (path / "events" / file).touch()
    return path


def test_an_instance_takes_events_by_their_filters(tmp_path: Path) -> None:
    path = instance_of(tmp_path, instance.new_name())
    made = instance.Instance(tmp_path, path.name, tmp_path / "ring")
    made.choose([Event("fuse:send", condition("connection==45"), ftrace=True)])
    assert (path / "events/fuse/send/filter").read_text() == "connection==45"
    assert (path / "events/fuse/send/enable").read_text() == "1"
    made.clear()
    assert (path / "events/enable").read_text() == "0"
    with pytest.raises(Error, match="cannot record fuse:none"):
        made.choose([Event("fuse:none", ftrace=True)])


def test_an_instance_that_is_gone_is_removed(tmp_path: Path) -> None:
    assert instance.remove(tmp_path / "none", 0.0)
    path = instance_of(tmp_path, "fusetools_0123abcd")  # folders with files cannot be removed
    assert not instance.remove(path, 0.0)
    assert (path / "tracing_on").read_text() == (path / "events/enable").read_text() == "0"


def test_clean_ends_the_process_that_is_meant_and_no_other() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        start = started(process.pid)
        assert start is not None
        clean(State(processes=[(process.pid, start - 1)]))  # an earlier one of that pid
        assert process.poll() is None
        removed = clean(State(processes=[(process.pid, start)]))
        assert removed.what == (f"process {process.pid} (sleep)",)
        assert process.wait(5) == -signal.SIGTERM


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"unknown": 1}', '{"processes": 3}', "\0", "1" * 5000]
)
def test_a_damaged_note_lists_nothing(tmp_path: Path, text: str) -> None:
    for place in ("0", "1"):  # this recording's, and another one's
        (tmp_path / place).mkdir()
        (tmp_path / place / "state.json").write_text(text)
        (tmp_path / place / "state.new").write_text(text)  # it was killed while it wrote
    with Lock(["fusetools"], tmp_path) as lock:
        assert lock.clean().what == ()
    assert not list(tmp_path.glob("*/state.*"))


def test_session_fits_into_its_samples() -> None:
    session = Session(command=("x" * 300,) * 90_000, arguments=("y",) * 30, seconds=1)
    text = encoded(session)
    assert len(text) <= BYTES
    assert json.loads(text)["command"][-1] == "…"
    assert json.loads(encoded(Session(command=("x",))))["command"] == ["x"]


def hierarchy(tmp_path: Path, cgroup: str, mounts: str) -> object:
    (tmp_path / "proc/self").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    (tmp_path / "proc/self/mounts").write_text(mounts)
    found = perf_hierarchy(Files(tmp_path))
    return None if found is None else (found.mount, found.own)


def test_cgroup_hierarchy(tmp_path: Path) -> None:
    v1 = "cgroup /sys/fs/cgroup/perf_event cgroup rw,perf_event 0 0\n"
    v2 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    assert hierarchy(tmp_path, "0::/user.slice\n", v2) == (
        "/sys/fs/cgroup/unified",
        "/user.slice",
    )
    # perf uses version 1's if it is mounted
    assert hierarchy(tmp_path, "7:perf_event:/a\n0::/b\n", v2 + v1) == (
        "/sys/fs/cgroup/perf_event",
        "/a",
    )
    assert hierarchy(tmp_path, "7:cpu:/a\n", v1) is None
    assert hierarchy(tmp_path, "", "") is None


def test_help_names_every_option() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fusetools", "record", "--help"], capture_output=True, text=True
    )
    for option in ("--mount", "--pid", "--fs", "--duration", "--call-graph", "--as-root", "-o"):
        assert option in done.stdout


@pytest.mark.parametrize(
    ("expedited", "normal", "may"),
    [("0\n", "0\n", True), ("1\n", "0\n", False), ("0\n", "1\n", False), (None, "0\n", False)],
)
def test_grace_periods_are_expedited_where_nobody_decided(
    tmp_path: Path, expedited: str | None, normal: str, may: bool
) -> None:
    setting, forbidden = tmp_path / "rcu_expedited", tmp_path / "rcu_normal"
    if expedited is not None:
        setting.write_text(expedited)
    forbidden.write_text(normal)
    assert graceperiods.may_be_expedited(setting, forbidden) is may
    assert graceperiods.expedite(True, tmp_path / "none") is False


def test_clean_puts_grace_periods_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "rcu_expedited"
    setting.write_text("1")
    monkeypatch.setattr(graceperiods.expedite, "__defaults__", (setting,))
    assert clean(State()).what == () and setting.read_text() == "1"  # another user's
    assert clean(State(expedited=True)).what == ("the kernel's grace periods as they were",)
    assert setting.read_text() == "0"


def test_a_recorder_that_misses_the_first_signal_is_asked_again(tmp_path: Path) -> None:
    script = """trap 'trap "exit 0" INT' INT; echo; while :; do sleep 0.01; done"""
    recorder = Program(tmp_path / "log")
    recorder.again = 0.2
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a job in a script's background
    try:
        recorder.start(["sh", "-c", script], lambda: None, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_until(lambda: (tmp_path / "log").read_text() == "\n", "the trap")
    assert recorder.end(60.0)
    assert recorder.process is not None and recorder.process.returncode == 0
    recorder.start(["sh", "-c", "trap '' INT TERM; sleep 600"], lambda: None, tmp_path)
    recorder.kill()
    assert recorder.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("says", ["Captured and wrote 0.1 MB perf.data", "Woken up 1 times"])
def test_a_perf_has_ended_once_it_says_that_all_is_written(tmp_path: Path, says: str) -> None:
    """Waiting for its events, which it then closes, is separate."""
    go = tmp_path / "go"
    script = f"""end() {{
      echo '[ perf record: {says} ]'
      until [ -e {go} ]; do sleep 0.01; done
      exit 3
    }}
    trap end INT; echo '[ perf record: ready ]'; while :; do sleep 0.01; done"""
    perf = Perf(tmp_path)
    perf.start(["sh", "-c", script], lambda: None, tmp_path)
    wait_until(lambda: "ready" in perf.said(), "the trap")
    if says.startswith("Woken"):
        go.touch()
        assert not perf.stop()
    else:
        assert perf.stop() and not perf.ended
        go.touch()
        perf.let_go()
    assert perf.process is not None and perf.process.returncode == 3
    perf.close()
