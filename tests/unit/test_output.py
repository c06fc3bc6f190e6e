"""Output files: errors before the work begins, and no file falls into others' hands."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fixtures import Invoke
from schemas import held

from fusetools.errors import Error
from fusetools.experiments import sweep
from fusetools.experiments.folder import Folder, Run
from fusetools.host.facts import Mount
from fusetools.host.files import bounded
from fusetools.output import Output, Owner, new_directory, new_file
from fusetools.plan.daemons import Target
from fusetools.plan.experiment import Experiment
from fusetools.plan.planner import ProbePlan
from fusetools.record import session
from fusetools.record.preflight import check_feedback
from fusetools.record.scratch import Note, Scratch, reclaim
from fusetools.record.state import Lock, State
from fusetools.render.json.answer import render as to_json
from fusetools.results.record import Outcome

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "samples" / "recordings" / "demo.data"
NOBODY = Owner(65534, 65534, (65534,), "nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for another user")


def kinds(folder: Path) -> dict[str, tuple[str, str]]:
    """The message for an unwritable file has its path, the reason, and the fix."""
    (folder / "directory").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("elsewhere")
    return {
        "/dev/full": ("it is a device", "-o FILE"),
        "/dev/stdout": ("it is a symbolic link to /proc/self/fd/1", "-o -"),
        f"{folder}/directory": ("it is a directory", "-o FILE"),
        f"{folder}/new/": ("it is a directory", "-o FILE"),
        f"{folder}/fifo": ("it is a FIFO", "-o FILE"),
        f"{folder}/link": ("it is a symbolic link to elsewhere", f"-o {folder}/elsewhere"),
        f"{folder}/none/x": (f"there is no directory {folder}/none", f"mkdir -p {folder}/none"),
        f"{folder}/{'x' * 300}": ("File name too long", ""),
        "/proc/x": ("No such file or directory", ""),
    }


def test_unwritable_outputs_are_refused_by_name(tmp_path: Path) -> None:
    for path, (why, fix) in kinds(tmp_path).items():
        with pytest.raises(Error) as caught:
            Output(path)
        assert caught.value.what == f"cannot write {path}"
        assert (caught.value.why, caught.value.fix) == (why, fix)
    assert sorted(os.listdir(tmp_path)) == ["directory", "fifo", "link"]


@pytest.mark.parametrize(
    "command",
    [
        ["report", "none.data", "-o"],
        ["flame", "-i", "none.data", "-o"],
        ["export", "-i", "none.data", "--format", "csv", "-o"],
        ["count", "-i", "none.data", "--csv"],
        ["queue", "-i", "none.data", "--csv"],
        ["diff", "none.data", "none.data", "--csv"],
        ["merge", str(DEMO), "-o"],
        pytest.param(["record", "-o"], marks=as_root),
    ],
)
def test_every_command_refuses_before_it_reads(
    command: list[str], run: Invoke, tmp_path: Path
) -> None:
    """Also before the message that the recording is missing."""
    folder = tmp_path / "x"
    folder.mkdir()
    for path, (why, _) in kinds(folder).items():
        result = run(*command, path)
        assert result.exit_code == 1
        if command[0] == "record" and path.startswith("/dev/std"):
            why = "a recording cannot be printed"  # nor for -o -, which other commands accept
        assert result.stderr.startswith(f"fusetools: cannot write {path}\n  why: {why}"), path


def test_a_file_takes_its_place_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")
    path.chmod(0o600)

    def broken() -> Iterator[str]:
        yield "part"
        raise RuntimeError

    with Output(str(path)) as output:
        with pytest.raises(RuntimeError):
            output.write(broken())
        assert path.read_text() == "before"
        output.write(["af", "ter"])
    assert path.read_text() == "after" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["x"]


class Other:
    """A process of another user that runs a function of ours until it is stopped."""

    def __init__(self, function: Callable[[Callable[[], bool]], int]) -> None:
        stop, self._stop = os.pipe()
        self._told, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._stop)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                os.write(tell, b"x")
                count = function(lambda: not select.select([stop], [], [], 0)[0])
                os.write(tell, str(count).encode())
            finally:
                os._exit(0)
        os.close(stop)
        os.close(tell)
        assert os.read(self._told, 1) == b"x"

    def stop(self) -> int:
        """Return the function's result."""
        os.close(self._stop)
        with os.fdopen(self._told) as told:
            os.waitpid(self.pid, 0)
            return int(told.read())


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A directory of another user's, who can reach it, beside a file of root's."""
    folder = Path(f"/var/tmp/fusetools-test-{os.getpid()}")
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def swap(folder: Path, target: Path, go_on: Callable[[], bool]) -> int:
    """The owner of a directory replaces root's new files there by directories of links; how
    often."""
    os.chdir(folder)
    count = 0
    while go_on():
        for name in os.listdir("."):
            if not name.startswith(".out.") or name.endswith("-mine"):
                continue
            with contextlib.suppress(OSError):
                os.mkdir(name + "-mine")
                os.symlink(target, name + "-mine/perf.data")
            with contextlib.suppress(OSError):
                os.rename(name, f"aside-{count}")
                count += 1
                os.rename(name + "-mine", name)
    return count


ROUNDS = int(os.environ.get("ROUNDS", "50"))  # make test-races: 1,000


@as_root
def test_nothing_of_roots_is_touched_in_another_users_directory(
    theirs: Path, tmp_path: Path
) -> None:
    """Rounds against a process that renames all files that it sees."""
    secret = Path(f"{theirs}-secret")
    secret.write_text("root's")
    secret.chmod(0o600)
    thief = Other(partial(swap, theirs, secret))
    written = 0
    try:
        for _ in range(ROUNDS):
            with contextlib.suppress(Error, OSError), Output(str(theirs / "out")) as output:
                scratch = Scratch(output)
                try:
                    scratch.make()
                    (scratch.path / "perf.data").write_text("events")
                    assert (scratch.path / "perf.data").read_text() == "events"
                    output.take(scratch.descriptor, "perf.data", keep=True)
                    written += 1
                finally:
                    scratch.remove()
    finally:
        swaps = thief.stop()
        seen = secret.read_text(), stat.S_IMODE(secret.stat().st_mode), secret.stat().st_uid
        secret.unlink()
    assert seen == ("root's", 0o600, 0)
    assert swaps > ROUNDS // 10 and written > ROUNDS // 10
    for path in theirs.rglob("*"):  # nothing was written to the files that it made
        if path.is_file() and not path.is_symlink() and path.stat().st_uid == 65534:
            assert path.stat().st_size == 0, path


@as_root
def test_a_directory_that_was_swapped_is_not_entered(tmp_path: Path) -> None:
    parent = os.open(tmp_path, os.O_RDONLY)
    made = os.mkdir

    def swapped(name: str, mode: int, dir_fd: int) -> None:
        made(name, mode, dir_fd=dir_fd)
        os.rename(tmp_path / name, tmp_path / "aside")
        made(tmp_path / name)
        os.chown(tmp_path / name, 65534, 65534)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", swapped)
        with pytest.raises(PermissionError):
            new_directory(parent, "x")
    os.close(parent)


@as_root
def test_root_writes_for_a_user_only_where_the_user_may(tmp_path: Path, theirs: Path) -> None:
    with pytest.raises(Error) as caught:
        Output(str(tmp_path / "x"), NOBODY)
    assert caught.value.why == "nobody, who invoked sudo, may not write there"
    Output(str(theirs / "x"), NOBODY).close()
    sticky = theirs / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "x").touch()  # root's
    with pytest.raises(Error):
        Output(str(sticky / "x"), NOBODY)
    Output(str(sticky / "y"), NOBODY).close()


# Remains of a killed recording


def left(folder: Path, content: bytes = b"events", ftraces: bytes | None = None) -> Note:
    with Output(str(folder / "out.data")) as output:
        scratch = Scratch(output)
        scratch.make()
        (scratch.path / "perf.data").write_bytes(content)
        if ftraces is not None:
            (scratch.path / "ring").write_bytes(ftraces)
        (scratch.path / "trace.dat.cpu0").touch()
        os.close(scratch.descriptor)
    return scratch.note


def test_data_of_a_killed_recording_is_kept(tmp_path: Path) -> None:
    note = left(tmp_path)
    kept = tmp_path / "out.data.partial"
    assert reclaim(note, tmp_path) == (f"{note.path} (what was recorded is kept: {kept})", True)
    assert kept.read_bytes() == b"events" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [kept.name]
    assert reclaim(note, tmp_path) == ("", True)
    assert reclaim(left(tmp_path), tmp_path)[0].endswith(f"{kept}.1)")  # and nothing is overwritten
    note = left(tmp_path, b"")
    assert reclaim(note, tmp_path) == (note.path, True)  # there was nothing
    assert sorted(os.listdir(tmp_path)) == [kept.name, kept.name + ".1"]


def test_ftrace_data_of_a_killed_recording_is_kept(tmp_path: Path) -> None:
    kept, ftraces = tmp_path / "out.data.partial", tmp_path / "out.data.partial.ftrace"
    note = left(tmp_path, ftraces=b"more")
    merge = f"fusetools merge {kept} {ftraces} -o merged.data"
    text = f"{note.path} (what was recorded is kept: {kept} and {ftraces}: {merge})"
    assert reclaim(note, tmp_path) == (text, True)
    assert (kept.read_bytes(), ftraces.read_bytes()) == (b"events", b"more")
    assert stat.S_IMODE(ftraces.stat().st_mode) == 0o600
    kept.unlink()
    reclaim(
        left(tmp_path, ftraces=b"others"), tmp_path
    )  # of another recording: neither has the first name
    assert ftraces.read_bytes() == b"more"
    names = {ftraces.name, "out.data.partial.1", "out.data.partial.1.ftrace"}
    assert set(os.listdir(tmp_path)) == names


def test_nothing_is_kept_of_a_recording_that_had_not_begun(tmp_path: Path) -> None:
    note = left(tmp_path, b"perf's header", ftraces=b"")
    assert reclaim(note, tmp_path) == (note.path, True)
    assert os.listdir(tmp_path) == []


def test_files_in_the_scratchs_place_are_left_alone(tmp_path: Path) -> None:
    for number, kind in enumerate(("link", "directory", "file", "gone")):
        folder = tmp_path / kind
        folder.mkdir()
        note = left(folder)
        os.rename(note.path, folder / "aside")
        other = folder / "other"
        other.mkdir()
        (other / "perf.data").write_text("theirs")
        if kind == "link":
            Path(note.path).symlink_to(other)
        elif kind == "directory":
            os.rename(other, note.path)
        elif kind == "file":
            Path(note.path).touch()
        before = sorted(folder.rglob("*"))
        state = State(scratch=[note])
        with Lock(["fusetools"], tmp_path / f"run{number}") as lock:
            lock.state = state
            lock.write()
        with Lock(["fusetools"], tmp_path / f"run{number}") as lock:
            assert lock.leftover is not None and lock.leftover.scratch == [note]
            removed = lock.clean()
        assert (removed.what, removed.left) == ((), ())
        assert sorted(folder.rglob("*")) == before
        assert (folder / "aside" / "perf.data").read_bytes() == b"events"


GOOD = {"probes": ["fuse_daemon:cvmfs_lookup"], "processes": [[12345, 7]]}


@pytest.mark.parametrize(
    "hostile",
    [
        {"folders": "/"},
        {"folders": [".."]},
        {"folders": ["../../etc"]},
        {"folders": ["perf.0123abcd/../../etc"]},
        {"scratch": "/"},
        {"scratch": [["/etc", 0, 0, 0, 0]]},
        {"scratch": [["/etc/.x.01234567/..", 0, 0, 0, 0]]},
        {"scratch": [["etc/.x.01234567", 0, 0, 0, 0]]},
        {"scratch": [["/etc/.x.01234567", -1, 0, 0, 0]]},
        {"scratch": [["/etc/.x.01234567", 0, 0, 0, 0, 0]]},
        {"scratch": [[["/etc"]]]},
        {"probes": ["evil:e"]},
        {"probes": ["fuse_daemon:a\n-:evil/e"]},
        {"probes": "fuse_daemon:a"},
        {"tracefs": "/etc"},
        {"tracefs": ["/etc"]},
        {"cgroup": "/etc/fusetools-1"},
        {"cgroup": "/sys/fs/cgroup/../../../etc/fusetools-1"},
        {"cgroup": 7},
        {"processes": [[1, 0]]},
        {"processes": [[0, 0]]},
        {"processes": [[-1, 0]]},
        {"processes": [["x", 0]]},
        {"processes": [[10**400, 0]]},
        {"ftrace": {"../../../etc/passwd": "x"}},
        {"ftrace": {"tracing_on": "1\n"}},
        {"ftrace": {"tracing_on": 1}},
        {"mounted": "yes"},
        {"directories": "/"},
        {"directories": ["/"]},
    ],
)
def test_a_hostile_note_lists_nothing(hostile: dict[str, object], tmp_path: Path) -> None:
    assert State.from_json(dict(GOOD)).probes == GOOD["probes"]
    file = tmp_path / "0" / "state.json"
    file.parent.mkdir()
    file.write_text(json.dumps({**GOOD, **hostile}))
    with Lock(["fusetools"], tmp_path) as lock:
        assert lock.leftover == State()
        assert lock.clean().what == ()


def test_a_note_that_is_no_file_of_roots(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(json.dumps(GOOD))
    run = tmp_path / "run"
    (run / "0").mkdir(parents=True)
    (run / "0/state.json").symlink_to(other)
    with Lock(["fusetools"], run) as lock:
        assert lock.leftover == State()
    (run / "0/state.json").unlink()
    os.mkfifo(run / "0/state.json")
    with Lock(["fusetools"], run) as lock:
        assert lock.leftover == State()


# The lock


def test_only_root_can_open_the_lock(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o755)
    (run / "lock").touch(mode=0o644)
    with Lock(["fusetools"], run):
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        assert stat.S_IMODE((run / "lock").stat().st_mode) == 0o600


@as_root
def test_a_lock_directory_of_somebody_elses_is_not_used(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    os.chown(run, 65534, 65534)
    with pytest.raises(Error) as caught:
        Lock(["fusetools"], run)
    assert caught.value.why == "it belongs to somebody else"
    link = tmp_path / "link"
    link.symlink_to("/etc")
    with pytest.raises(Error):
        Lock(["fusetools"], link)
    assert not Path("/etc/lock").exists()


def test_the_lock_holder_comes_from_the_kernel(tmp_path: Path) -> None:
    """Whatever the file says."""
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); f.write(sys.argv[2]); f.flush(); print(); time.sleep(60)"  # noqa: E501
    with Lock(["fusetools"], tmp_path):
        pass
    for content in ('[0, "x"]', f'[{os.getpid()}, "kill", "me"]', "", "[[]]"):
        words = [sys.executable, "-c", code, str(tmp_path / "lock"), content]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            with pytest.raises(Error) as caught:
                Lock(["fusetools"], tmp_path)
            holder.send_signal(signal.SIGKILL)
        assert caught.value.why.startswith(f"pid {holder.pid}: python")
        assert caught.value.fix.endswith(f"kill -INT {holder.pid}")


def test_a_file_system_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from fusetools.host import files

    def paused() -> str:
        signal.pause()
        return ""

    monkeypatch.setattr(files, "bounded", lambda function, seconds: bounded(paused, 0.1))
    with pytest.raises(Error) as caught:
        Output("/tmp/x")
    assert caught.value.why == "the file system of /tmp does not answer"


# Sweeps


@as_root
def test_runs_of_a_sweep_in_another_users_directory(theirs: Path) -> None:
    """A user who swaps the folder of the runs gets no file of root's overwritten."""
    secret = Path(f"{theirs}-secret")
    secret.write_text("root's")
    secret.chmod(0o600)

    def steal(go_on: Callable[[], bool]) -> int:
        os.chdir(theirs)
        count = 0
        while go_on():
            with contextlib.suppress(OSError):
                for point in os.listdir("sw/runs"):
                    for n in os.listdir(f"sw/runs/{point}"):
                        os.rename("sw/runs", f"sw/aside-{count}")
                        count += 1
                        os.makedirs(f"sw/runs/{point}/{n}")
                        os.symlink(secret, f"sw/runs/{point}/{n}/output")
                        os.symlink(secret, f"sw/runs/{point}/{n}/run.json")
            with contextlib.suppress(OSError):
                os.rename("sw/runs", f"sw/aside-{count}")
                count += 1
        return count

    one = Experiment(("true", "{n}"), {"n": ("1", "2")}, trace=False)
    folder = Folder.create(theirs / "sw", one, ROUNDS, NOBODY)
    os.chown(theirs / "sw", 65534, 65534)
    folder.lock(NOBODY)
    thief = Other(steal)
    done = 0
    try:
        for n in range(1, ROUNDS + 1):
            for index in range(2):
                with contextlib.suppress(OSError), folder.begin(index, n) as place:
                    log = new_file(place, "output")
                    os.write(log, b"of the workload")
                    os.close(log)
                    folder.keep(index, place, Run(n, 0.1, 0.1, 0.1, 1))
                    done += 1
            with contextlib.suppress(OSError):
                folder.save({}, "")
    finally:
        swaps = thief.stop()
        seen = secret.read_text(), stat.S_IMODE(secret.stat().st_mode), secret.stat().st_uid
        secret.unlink()
    assert seen == ("root's", 0o600, 0)
    assert swaps > 10 and done > 10


@as_root
def test_a_sweep_of_another_user_is_not_gone_on_with(tmp_path: Path) -> None:
    """Its command would run as root, or as sudo's caller."""
    one = Experiment(("id",), {}, trace=False, recording={"as_root": True})
    for name, change in (
        ("theirs", lambda path: os.chown(path / "sweep.json", 65534, 65534)),
        ("in theirs", lambda path: os.chown(path, 65534, 65534)),
        ("open", lambda path: path.chmod(0o777)),
        ("changed", lambda path: (path / "sweep.json").write_text('{"experiment": 1}')),
        ("a list", lambda path: (path / "sweep.json").write_text("[1]")),
    ):
        sweep._save(Folder.create(tmp_path / name, one, 1))
        folder = Folder.open(tmp_path / name)
        change(tmp_path / name)
        with pytest.raises(Error) as caught:
            folder.lock(None)
        assert caught.value.what == f"the sweep {tmp_path / name} is not yours"
    sweep._save(Folder.create(tmp_path / "ours", one, 1))
    Folder.open(tmp_path / "ours").lock(None)


def test_a_sweep_that_was_killed_at_its_first_writing(tmp_path: Path) -> None:
    (tmp_path / "sw").mkdir()
    (tmp_path / "sw" / ".sweep.json.0123abcd").touch()
    one = Experiment(("true",), {}, trace=False)
    Folder.create(tmp_path / "sw", one, 1).lock(None)
    assert os.listdir(tmp_path / "sw") == []
    (tmp_path / "sw" / "mine").touch()
    with pytest.raises(Error, match="is no sweep"):
        Folder.create(tmp_path / "sw", one, 1)


def test_a_sweep_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    folder = Folder.create(tmp_path / "link", Experiment(("true",), {}, trace=False), 1)
    with pytest.raises(Error) as caught:
        folder.lock(None)
    assert caught.value.why == f"it is a symbolic link to {tmp_path / 'real'}"


# record


def test_a_recording_on_a_traced_mount_is_refused(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    mount = Mount(
        path="/mnt",
        fstype="fuse.x",
        source="x",
        connection=os.major(device) << 20 | os.minor(device),
        user=0,
        group=0,
        allow_other=True,
    )
    with Output(str(tmp_path / "x")) as output:
        other = replace(mount, connection=mount.connection + 1)
        check_feedback(output, ProbePlan((Target(other),), (), ()))
        with pytest.raises(Error) as caught:
            check_feedback(output, ProbePlan((Target(other), Target(mount)), (), ()))
    assert "it is on /mnt, which is traced" in caught.value.why and "--force" in caught.value.fix


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ({}, 0),
        ({"lost": 3}, 4),
        ({"failed": True}, 1),
        ({"failed": True, "lost": 3}, 1),
        ({"exit_status": 5, "lost": 3}, 5),
    ],
)
def test_the_exit_status_says_what_is_missing(
    outcome: dict[str, object], status: int, run: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Outcome(**outcome)  # type: ignore[arg-type]
    held("record", to_json("record", found))
    monkeypatch.setattr(session, "record", lambda *_, **__: found)
    assert run("record", "--", "true").exit_code == status


@pytest.mark.parametrize("kind", ["directory", "FIFO", "symbolic link"])
def test_files_that_cannot_be_kept_are_refused(tmp_path: Path, kind: str) -> None:
    """FILE.old is checked before anything begins."""
    old = tmp_path / "x.old"
    make = {"directory": old.mkdir, "FIFO": lambda: os.mkfifo(old)}
    make.get(kind, lambda: old.symlink_to("y"))()
    with (
        Output(str(tmp_path / "x")) as output,
        pytest.raises(Error, match="cannot write") as caught,
    ):
        output.check_old()
    assert f"x.old, where an earlier one is kept, is a {kind}" in caught.value.why
    old.rmdir() if kind == "directory" else old.unlink()
    old.write_text("")
    with Output(str(tmp_path / "x")) as output:
        output.check_old()
