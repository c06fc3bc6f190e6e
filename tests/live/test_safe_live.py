"""`fusetools record` among other users, hostile daemons and file systems that do not answer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from left import own_probes
from mounts import HANGS, wait_until
from recording import COMMAND, HURRIED, begin, children, record, session
from sample import BUILD, ROOT, Mounter, SampleMount, make_tree
from variants import variants

import fusetools

sys.path.insert(0, str(ROOT / "tests" / "unit"))
from test_output import Other, swap

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A directory of another user's, who can reach it."""
    folder = Path(f"/var/tmp/fusetools-live-{os.getpid()}")
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def called(data: Path) -> dict[str, int]:
    """Return the number of calls of each function."""
    return {c.function: c.count for c in fusetools.open(data).counts().counts}


def test_in_another_users_directory(sample_mount: Mounter, theirs: Path) -> None:
    """A user who renames all that root creates there gets none of root's files, and changes
    nothing."""
    mount = sample_mount()
    secret = Path(f"{theirs}-secret")
    secret.write_text("root's")
    secret.chmod(0o600)
    thief = Other(lambda go_on: swap(theirs, secret, go_on))
    try:
        for _ in range(3):
            record(theirs, "--mount", mount.path, "-o", "out", "--", "true")
    finally:
        swaps = thief.stop()
        seen = secret.read_text(), stat.S_IMODE(secret.stat().st_mode), secret.stat().st_uid
        secret.unlink()
    assert swaps and seen == ("root's", 0o600, 0)
    for path in theirs.rglob("*"):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size:
            assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600), path


def test_a_daemon_with_a_seccomp_filter_lives(sample_mount: Mounter, tmp_path: Path) -> None:
    """The daemon's filter kills it at the first system call of a return probe that the filter sees.

    If the kernel hides that call from filters, its callbacks are timed as any daemon's.
    """
    sealed = Path(__file__).with_name("sealed.py")
    mount = sample_mount(before=[sys.executable, str(sealed)])
    assert "Seccomp:\t2" in Path(f"/proc/{mount.pid}/status").read_text()
    workload = BUILD / "workload"
    done = record(tmp_path, "--mount", mount.path, "--", workload, "mixed", "--few", mount.path)
    assert done.status == 0, done.stderr
    assert mount.process.poll() is None
    own = {name: one.total for name, one in mount.affairs().items() if one.total}
    found = called(tmp_path / "perf.data")
    assert own and {name: n for name, n in found.items() if name in own} == own
    timed = {probe["function"] for probe in session(tmp_path / "perf.data")["probes"]}
    assert own.keys() <= timed
    mount.workload("stat", 31, "dir-00/file-000")


def test_a_recording_in_their_directory_is_whole(sample_mount: Mounter, theirs: Path) -> None:
    mount = sample_mount()
    done = record(theirs, "--mount", mount.path, "--", "ls", mount.path)
    assert done.status == 0, done.stderr
    status = (theirs / "perf.data").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600)
    assert os.listdir(theirs) == ["perf.data"]
    assert fusetools.open(theirs / "perf.data").counts().counts


# Hung requests


def hang(mount: SampleMount) -> str:
    """Shell code: a request that is never answered, once the daemon is stopped."""
    return f"{mount.until_stopped()}; cat {mount.path}/dir-00/file-000"


def until_in_cat(pid: int) -> None:
    """Wait until the workload's cat runs."""
    wait_until(lambda: any(children(shell, "cat") for shell in children(pid, "sh")), "the request")


@pytest.fixture
def continued() -> Iterator[list[int]]:
    """Return processes that keep running afterwards."""
    stopped: list[int] = []
    yield stopped
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["--duration", *variants(signal.SIGINT, signal.SIGTERM)])
def test_a_request_that_hangs_costs_no_recording(
    how: object, sample_mount: Mounter, tmp_path: Path, continued: list[int]
) -> None:
    mount = sample_mount()
    continued.append(mount.pid)
    work = ["--", "sh", "-c", f"trap '' INT TERM; ls {mount.path}; {hang(mount)}"]
    # A process that stayed behind keeps the output open.
    work[-1] = f"exec > /dev/null 2>&1; {work[-1]}"
    arguments = ["--mount", mount.path, *(["--duration", 2] if how == "--duration" else []), *work]
    with begin(tmp_path, *arguments, command=HURRIED) as process:
        if isinstance(how, signal.Signals):
            until_in_cat(process.pid)
            process.send_signal(how)
        said = process.communicate(timeout=HANGS)[1]
    assert process.returncode == 124, said
    assert "left behind: cat (pid " in said and "for a file system" in " ".join(said.split())
    assert fusetools.open(tmp_path / "perf.data").counts("readdir|opendir").counts
    assert session(tmp_path / "perf.data")["exit_status"] in (None, 0)


def test_data_of_a_killed_recording_is_kept(
    sample_mount: Mounter, tmp_path: Path, continued: list[int]
) -> None:
    mount = sample_mount()
    continued.append(mount.pid)
    arguments = [
        "--mount",
        mount.path,
        "--",
        "sh",
        "-c",
        f"exec > /dev/null 2>&1; ls {mount.path}; {hang(mount)}",
    ]
    with begin(tmp_path, *arguments) as process:
        until_in_cat(process.pid)
        process.kill()
        process.communicate()
    os.kill(mount.pid, signal.SIGCONT)
    clean = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True)
    assert clean.returncode == 0, clean.stderr
    kept = tmp_path / "perf.data.partial"
    of_tasks = tmp_path / "perf.data.partial.tasks"
    ftraces = tmp_path / "perf.data.partial.ftrace"
    places = f"{kept} and {of_tasks} and {ftraces}"
    found = re.search(rf"kept: {places}: fusetools (merge .*)\)$", clean.stdout, re.M)
    assert found, clean.stdout
    assert sorted(os.listdir(tmp_path)) == [kept.name, ftraces.name, of_tasks.name]
    with pytest.raises(fusetools.Error) as caught:
        fusetools.open(kept)
    assert (caught.value.why, caught.value.fix) == (f"{ftraces} does", f"fusetools {found[1]}")
    subprocess.run([*COMMAND, *shlex.split(found[1])], cwd=tmp_path, check=True)
    assert any(called(tmp_path / "merged.data").values())


def test_perf_that_dies_is_reported_at_once(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    with begin(tmp_path, "--mount", mount.path, "--", "sleep", "60") as process:
        assert process.stderr is not None
        wait_until(lambda: bool(children(process.pid, "sleep")), "the workload")
        perf, _of_tasks = children(process.pid, "perf")
        os.kill(perf, signal.SIGKILL)
        said = process.stderr.readline()
        assert said == "fusetools: the recording ended: perf was killed; the workload goes on\n"
        (workload,) = children(process.pid, "sleep")
        os.kill(workload, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 128 + signal.SIGKILL


def test_a_recording_ends_at_its_limit(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    enough = tmp_path / "enough"
    work = f"until [ -e {enough} ]; do ls -R {mount.path}; done >/dev/null 2>&1"
    arguments = ["--mount", mount.path, "--max-size", "1M", "--", "sh", "-c", work]
    with begin(tmp_path, *arguments) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("fusetools: the recording ended: it reached 1M (--max-size), at ")
        enough.touch()
        process.communicate()
    assert process.returncode == 1
    assert fusetools.open(tmp_path / "perf.data").counts().counts


# Odd and hostile daemons


def odd(directory: Path, name: str) -> SampleMount:
    """The sample file system, with its programs in a directory with an odd name."""
    build = directory / name
    shutil.copytree(BUILD / "with-symbols", build)
    directory = directory / "fs"
    directory.mkdir()
    mount = SampleMount(directory, ["--kernel-cache", "0"], str(build))
    mount.wait()
    return mount


def test_names_that_cannot_be_said_in_tracefs(
    sample_mount: Mounter, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A newline would start a probe of another user's choice.

    The file is probed under another of its names.
    """
    plain = sample_mount()
    name = "a\nb:c d\x0ce 'f'\np:evil\\e"
    mount = odd(tmp_path_factory.mktemp("o"), name)
    try:
        work = f"ls {plain.path} {mount.path}; stat {mount.path}/dir-00"
        done = record(tmp_path, "--", "sh", "-c", work)
        assert done.status == 0, done.stderr
        assert "evil" not in Path("/sys/kernel/tracing/uprobe_events").read_text()
        counts = called(tmp_path / "perf.data")
        assert counts["cvmfs_opendir"] == 2 and counts["cvmfs_lookup"] >= 1, done.stderr
    finally:
        mount.clean()


NAMESPACE = """
    mount --make-rprivate / && mount -t tmpfs none /usr/lib/debug || exit 3
    {python} {rawfs} /usr/lib/debug --delay 0 > {ready} &
    until grep -q ready {ready}; do sleep 0.05; done
    kill -STOP $!
    echo $! > {pid}
    exec {samplefs} -f --socket {socket} --kernel-cache 0 {tree} {path}
"""


@pytest.fixture
def behind(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleMount]:
    """A daemon in a mount namespace whose /usr/lib/debug is a file system that hangs."""
    Path("/usr/lib/debug").mkdir(exist_ok=True)
    directory = tmp_path_factory.mktemp("n")
    mount = SampleMount.__new__(SampleMount)
    mount.tree, mount.path = directory / "tree", directory / "mount"
    mount.socket, mount.build = directory / "socket", BUILD / "with-symbols"
    make_tree(mount.tree)
    mount.path.mkdir()
    hung = directory / "hung"
    script = NAMESPACE.format(
        python=sys.executable,
        rawfs=Path(__file__).with_name("rawfs.py"),
        ready=directory / "ready",
        pid=hung,
        samplefs=mount.build / "samplefs",
        socket=mount.socket,
        tree=mount.tree,
        path=mount.path,
    )
    mount.process = subprocess.Popen(["unshare", "-m", "sh", "-c", script])
    mount.pid = mount.process.pid
    inside = Path(f"/proc/{mount.pid}/mountinfo")
    wait_until(lambda: f" {mount.path} " in inside.read_text(), "the mount")
    yield mount
    os.kill(int(hung.read_text()), signal.SIGKILL)
    mount.process.kill()
    mount.process.wait()


def test_debug_files_on_a_file_system_that_hangs(behind: SampleMount, tmp_path: Path) -> None:
    """Its own requests are recorded nevertheless, and doctor ends, too."""
    work = f"ls /proc/{behind.pid}/root{behind.path}"
    doctor = subprocess.Popen([*COMMAND, "doctor", "--json"], stdout=subprocess.PIPE, text=True)
    done = record(tmp_path, "--mount", behind.path, "--", "sh", "-c", work)
    mounts = json.loads(doctor.communicate(timeout=120)[0])["mounts"]
    assert any(mount["path"] == str(behind.path) for mount in mounts)
    assert done.status == 0, done.stderr
    assert called(tmp_path / "perf.data")["cvmfs_opendir"] == 1


def test_an_output_on_a_file_system_that_hangs(
    sample_mount: Mounter, tmp_path: Path, continued: list[int]
) -> None:
    mount = sample_mount()
    continued.append(mount.pid)
    os.kill(mount.pid, signal.SIGSTOP)
    place = str(mount.path / "dir-00/x")
    output = f"the file system of {mount.path}/dir-00 does not answer"
    given = "its file system does not answer"
    commands = [
        (["record", "-o", place], output),
        (["report", "-o", place], output),
        (["flame", "-o", place], output),
        (["record", "--fs", f"{place}.toml", "--", "true"], given),
        (["sweep", place], given),
        (["sweep", "-o", place, "--no-trace", "--param", "a=1,2", "--", "echo", "{a}"], given),
        (["report", place], given),
        (["compare", place, place], given),
        (["diff", place, place], given),
    ]
    demo = str(ROOT / "samples/recordings/demo.data")
    for name in ("-i", "--symfs", "--kallsyms"):
        words = ["flame", "-i", demo, name, str(mount.path / "dir-00"), "-o", "x.svg"]
        commands.append((words, given))
    pipe = subprocess.PIPE
    # All at the same time: each waits for an answer until it gives up.
    started = [
        subprocess.Popen([*COMMAND, *words], stdout=pipe, stderr=pipe, text=True, cwd=tmp_path)
        for words, _ in commands
    ]
    for process, (words, why) in zip(started, commands):
        _, said = process.communicate(timeout=HANGS)
        assert process.returncode == 1 and why in said, (words, said)


def test_a_program_on_a_file_system_that_hangs(
    sample_mount: Mounter, tmp_path: Path, continued: list[int]
) -> None:
    """The workload starts nevertheless: its hang may be the question."""
    mount = sample_mount()
    continued.append(mount.pid)
    os.kill(mount.pid, signal.SIGSTOP)
    words = ["--mount", mount.path, "--duration", 1, "--", mount.path / "dir-00/x"]
    with (tmp_path / "said").open("w") as said:
        command = [*COMMAND, "record", *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, stdout=said, stderr=said, timeout=HANGS)
    assert done.returncode == 124, (tmp_path / "said").read_text()
    assert (tmp_path / "perf.data").exists() and not own_probes()
