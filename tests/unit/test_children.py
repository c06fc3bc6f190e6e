"""Children that may hang: what they hold, how they are abandoned, and how their answers arrive."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusetools.host import files, paths
from fusetools.host.files import bounded, close_own, command_problem, end_children, left_behind
from fusetools.host.messages import Incoming, framed, receive, send
from fusetools.host.processes import read_stat
from fusetools.record import merger, program, state
from fusetools.record.merger import Merger, Opener
from fusetools.record.state import Lock
from fusetools.record.workload import Workload

LONG = 60.0  # timeout to detect a hang on a busy machine


def runs(pid: int) -> bool:
    found = read_stat(files.Files(Path("/")), pid)
    return found is not None and found.state not in "ZX"


def until(condition: object) -> None:
    end = time.monotonic() + LONG
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def descriptors() -> str:
    links = {}
    for number in os.listdir("/proc/self/fd"):
        with_link = f"/proc/self/fd/{number}"
        if os.path.lexists(with_link):
            links[int(number)] = os.readlink(with_link)
    return json.dumps(links)


def test_a_bounded_child_holds_nothing_but_its_answer(tmp_path: Path) -> None:
    kept = os.open(tmp_path, os.O_RDONLY)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = json.loads(bounded(descriptors, LONG, keep=[kept]) or "")
    os.close(kept)
    assert [held[str(number)] for number in range(3)] == [os.devnull] * 3
    others = sorted(link for number, link in held.items() if int(number) > 2)
    assert [link.partition(":")[0] for link in others] == [str(tmp_path), "pipe"]


def test_an_answer_counts_though_the_pipe_stays_open() -> None:
    def answers() -> str:
        other = os.fork()
        if other == 0:  # holds the pipe, as a hanging child would
            signal.pause()
        return str(other)

    answer = bounded(answers, LONG)
    assert answer is not None
    os.kill(int(answer), signal.SIGKILL)


def test_children_that_stay_behind_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_given_up", set())
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: None)  # not even SIGKILL ends one that waits
        child = os.fork()
        if child == 0:
            signal.pause()
        stat = Path(f"/proc/{child}/stat")
        # One that only lacks a CPU ends soon, and is not reported.
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.001)
        end_children([child])
        assert left_behind(0.01) == [child]
    assert left_behind(LONG) == []


def test_children_that_only_lack_a_cpu_do_not_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_given_up", set())
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: None)
        child = os.fork()
        while child == 0:  # it runs, or waits for a CPU
            pass
        end_children([child])
        assert left_behind(0.01) == []
    os.kill(child, signal.SIGKILL)
    assert left_behind(LONG) == []


def test_messages_have_a_length() -> None:
    reader, writer = os.pipe()
    for text in (b"", b"first", b"\0" * 1000):
        send(writer, text)
        assert receive(reader) == text
    os.write(writer, framed(b"cut off")[:-1])
    os.close(writer)
    assert receive(reader) is None
    os.close(reader)


def test_a_message_that_is_too_long_is_refused() -> None:
    reader, writer = os.pipe()
    send(writer, b"12345")
    with pytest.raises(ValueError, match="longer than 4 bytes"):
        Incoming(4).take(reader)
    os.close(reader)
    os.close(writer)


def test_a_program_gets_no_descriptor_of_ours(tmp_path: Path) -> None:
    """The child that runs it does not block either; it may wait for its file system forever."""
    ours, theirs = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(theirs, True)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        close_own(writer)
        send(writer, descriptors().encode())
        os._exit(0)
    held = json.loads(receive(reader) or b"")
    os.waitpid(child, 0)
    assert str(ours) not in held and held[str(theirs)] == str(tmp_path)
    for number in (ours, theirs, reader, writer):
        os.close(number)


def test_a_workload_that_cannot_be_loaded_holds_no_lock(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        workload = Workload(["true"], None, os.environ)  # it waits, like a child that hangs in exec
    try:
        with (tmp_path / "lock").open("w") as lock:
            until(lambda: _taken(lock.fileno()))
    finally:
        workload.abandon()


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def test_a_recorder_that_cannot_be_killed_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "KILLED", 0.1)
    one = program.Program(tmp_path / "log")
    pid = one.start(["sleep", str(LONG)], lambda: None, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda *_: None)
        one.let_go(0.1)
        assert not one.ended
    os.kill(pid, signal.SIGKILL)
    one.let_go()
    assert one.ended


# Opening programs


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Paths below /hangs, a FUSE mount, hang, also in a process's view of it."""
    monkeypatch.setattr(merger, "OPENING", 0.3)

    def opened(path: str) -> int:
        if "/hangs/" in path:
            signal.pause()
        return os.open("/dev/null", os.O_RDONLY)

    monkeypatch.setattr(merger, "open_program", opened)
    mounts = [type("Mount", (), {"path": "/hangs"})]
    monkeypatch.setattr(merger, "of_own_namespace", lambda _: mounts)
    yield []


def test_a_program_that_hangs_is_one_program(hanging: list[str]) -> None:
    with Opener() as opener:
        os.close(opener("/bin/true"))
        with pytest.raises(OSError, match="timed out"):
            opener("/hangs/bin/a")
        assert len(opener.hung) == 1
        with pytest.raises(OSError, match="timed out"):  # immediately: it lies there, too
            opener("/hangs/lib/b")
        assert [path for _, path in opener.hung] == ["/hangs/bin/a"]
        os.close(opener("/hangsnot/c"))
        with pytest.raises(OSError, match="timed out"):
            opener("/proc/1/root/hangs/d")
        with pytest.raises(OSError, match="timed out"):
            opener("/proc/1/map_files/e")
        os.close(opener("/proc/12/root/f"))
        children = [pid for pid, *_ in (*opener.hung, *opener._children)]
        assert len(children) == merger.OPENERS
    # A killed child needs time to free its memory.
    until(lambda: not any(map(runs, children)))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of other users")
def test_a_list_of_generated_code_must_be_the_processs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(pid: int, user: int, inside: int = 7) -> Path:
        """Make a process in whose own root /tmp/perf-7.map may be."""
        place = tmp_path / f"proc/{pid}"
        (place / "root/tmp").mkdir(parents=True)
        (place / "stat").write_text(f"{pid} (x) S 1" + " 0" * 48)
        (place / "status").write_text(f"Uid:\t0\t{user}\t0\t0\nNSpid:\t{pid}\t{inside}\nx:\n")
        return place / "root/tmp" / f"perf-{inside}.map"

    real_open = os.open

    def inside(path: str, flags: int, *more: int, **keys: int) -> int:
        return real_open(
            str(tmp_path) + path if path.startswith("/proc") else path, flags, *more, **keys
        )

    monkeypatch.setattr(merger, "Files", lambda _: files.Files(tmp_path))
    monkeypatch.setattr(os, "open", inside)

    def read(pid: int, path: str = "") -> str:
        with os.fdopen(merger.open_generated(pid, path or f"/tmp/perf-{pid}.map")) as file:
            return file.read()

    own = fake(100, 1234)
    own.write_text("1000 10 f\n")
    with pytest.raises(PermissionError):  # root's, not the process's user's
        read(100)
    os.chown(own, 1234, 1234)
    assert read(100) == "1000 10 f\n"
    dump = own.parent / "jit-7.dump"
    dump.write_text("JiTD")
    os.chown(dump, 1234, 1234)
    assert read(100, "/tmp/jit-7.dump") == "JiTD"
    fake(101, 0).symlink_to("/etc/passwd")
    linked = fake(102, 0)
    linked.parent.rmdir()
    linked.parent.symlink_to("/etc")
    os.mkfifo(fake(103, 0))
    for pid in (101, 102, 103):
        with pytest.raises(OSError):
            read(pid)
    with pytest.raises(OSError):
        read(104)  # it has ended, and left none


def test_the_merger_may_ask_for_lists_of_generated_code(tmp_path: Path) -> None:
    program = (
        "import sys; open('/tmp/perf-%d.map' % __import__('os').getpid(), 'w').write('1 2 f\\n');"
    )
    program += "print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    path = f"/tmp/perf-{process.pid}.map"
    try:
        with Opener() as opener:
            with os.fdopen(opener(f"/proc/{process.pid}/root{path}")) as file:
                assert file.read() == "1 2 f\n"
            with pytest.raises(OSError):
                opener(path)  # it is no program
            process.communicate()
            with os.fdopen(opener(f"/proc/{process.pid}/root{path}")) as file:
                assert file.read() == "1 2 f\n"  # also once the process has ended
    finally:
        process.communicate()
        os.unlink(path)


def test_no_more_programs_are_opened_once_all_hang(hanging: list[str]) -> None:
    with Opener() as opener:
        for number in range(merger.OPENERS):
            with pytest.raises(OSError, match="timed out"):
                opener(f"/proc/{number}/root/hangs/x")
        with pytest.raises(OSError, match="timed out"):
            opener("/bin/true")


# The merger

ANSWER = '{"left_out": {}, "stacks": [0, 0, 0], "session_at": [], "hung": [[%d, "/hangs/x"]]}'
LEAVES = f"""
import os, signal, sys
sys.path[:] = sys.argv[1:]
from fusetools.host.messages import receive, send
receive(0)
child = os.fork()
if child == 0:  # holds both pipes
    signal.pause()
send(1, ({ANSWER!r} % child).encode())
signal.pause()
"""


def test_an_answer_of_the_merger_counts_though_its_children_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merger, "_CODE", LEAVES)
    one = Merger()
    session = one._process.pid
    info = one.merge([], str(tmp_path / "x"), "{}", lambda: False)
    assert info["stacks"] == (0, 0, 0)
    assert one.hung == ["/hangs/x does not open: its functions have no names"]
    assert merger._of_session(session) == []


def test_a_merger_that_does_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not read its questions, and waits for no file system."""
    monkeypatch.setattr(merger, "_CODE", "import signal; signal.pause()")
    monkeypatch.setattr(merger, "SILENT", 0.5)
    one = Merger()
    with pytest.raises(merger.Stuck, match="does not answer"):
        one.merge(["x" * (4 << 20)], str(tmp_path / "x"), "{}", lambda: False)
    assert merger._of_session(one._process.pid) == []


def test_a_merger_that_cannot_be_killed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merger, "_CODE", "import signal; signal.pause()")
    monkeypatch.setattr(merger, "SILENT", 0.5)
    monkeypatch.setattr(merger, "KILLED", 0.2)
    one = Merger()
    pid = one._process.pid
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda *_: None)
        with pytest.raises(merger.Stuck, match=f"pid {pid} is left behind"):
            one.merge([], str(tmp_path / "x"), "{}", lambda: False)
    one.close()
    assert not runs(pid)


# Holders of a recording's lock

TAKES = """
import os, signal, sys
from pathlib import Path
from fusetools.record.state import Lock
lock = Lock(["fusetools", "record", "--", "ls"], Path(sys.argv[1])).__enter__()
child = os.fork()
if child == 0:
    os.close(1)
    signal.pause()
print(child, flush=True)
os._exit(0)
"""


def test_the_lock_holder_of_an_ended_recording_is_named(tmp_path: Path) -> None:
    place = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", TAKES, place], stdout=subprocess.PIPE, text=True, check=True
    )
    child = int(done.stdout)
    try:
        with Lock(["fusetools", "clean"], place) as lock:
            (other,) = lock.beside()
        assert other.startswith(f"pid {child} (python")
        assert other.endswith("), left behind by fusetools record -- ls, which has ended")
    finally:
        os.kill(child, signal.SIGKILL)
    until(lambda: not runs(child))
    with Lock(["fusetools", "clean"], place) as lock:
        assert lock.beside() == [] and state._holder(place / "0" / "lock") in (None, os.getpid())


# Paths that are not looked up

MOUNTS = """\
22 1 254:1 / / rw - ext4 /dev/sda rw
30 22 0:40 / /mnt/a\\040b rw,relatime shared:1 - fuse.sshfs host: rw,user_id=0
31 22 0:41 / /net rw - autofs /etc/auto.net rw,fd=6,pgrp=1
32 22 0:42 / /shared rw - virtiofs tag rw
33 22 0:43 / /fuse rw - fusectl fusectl rw
"""


def test_mounts_that_may_hang() -> None:
    assert paths.hanging(MOUNTS) == ["/mnt/a b", "/net", "/shared"]


def test_commands_are_not_looked_for_on_mounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, plain = tmp_path / "there", tmp_path / "plain"
    for place in (there, plain):
        place.mkdir()
    for file in (there / "prog", plain / "other"):
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    (plain / "text").write_text("")
    asked: list[str] = []

    def hangs(path: str) -> bool:
        asked.append(path)
        return path.startswith(str(there))

    monkeypatch.setattr(files, "may_hang", lambda: hangs)
    monkeypatch.setenv("PATH", str(plain))
    assert command_problem("other") == 0 and asked == [str(plain)]
    assert command_problem("prog") == 2
    assert command_problem(str(plain / "text")) == 13
    monkeypatch.setenv("PATH", f"{there}:{plain}")
    assert command_problem("other") == 0
    assert command_problem("none") == 0  # the file may exist
    assert command_problem(str(there / "none")) == 0


def test_tools_of_root_are_not_looked_for_on_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its daemon decides who owns a file there."""
    monkeypatch.setattr(files, "may_hang", lambda: lambda path: path == "/usr/sbin")
    files._of_root.cache_clear()
    try:
        assert files._of_root("/usr/bin:/usr/sbin") == "/usr/bin"
    finally:
        files._of_root.cache_clear()


def test_time_without_a_cpu_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow() -> str:
        time.sleep(1.2)
        return "x"

    assert bounded(slow, 0.6) is None
    waits = iter([0.0, *[LONG] * 100])
    monkeypatch.setattr(files, "waited_for_cpu", lambda _: next(waits))
    monkeypatch.setattr(files, "BUSY", 100)
    assert bounded(slow, 0.6) == "x"
