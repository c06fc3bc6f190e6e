"""Odd and hostile daemons, mounts and callers.

Every command that looks at this host copes with them, and none of their text controls a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from mounts import HANGS, wait_until
from recording import COMMAND, environment
from sample import BUILD, Mounter, SampleMount, make_tree

import fusetools

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]

ODD = "a\x1b[2J\x1b]0;x\x07\u202egnp.\u2066 c\n\x7f\udcff"
# A command prefix that enters a daemon's namespaces.
Inside = tuple[str, ...]


class Odd(SampleMount):
    """The sample file system with a path, a program and a namespace that the test chooses."""

    def __init__(
        self,
        folder: Path,
        path: Path,
        build: Path = BUILD / "with-symbols",
        program: str = "samplefs",
        before: Inside = (),
    ) -> None:
        self.tree, self.path, self.socket, self.build = folder / "tree", path, folder / "s", build
        make_tree(self.tree)
        make_all(path)
        words: list[str | Path] = [
            build / program,
            "-f",
            "--socket",
            self.socket,
            "--kernel-cache",
            "0",
        ]
        self.process = subprocess.Popen([*before, *words, self.tree, path], start_new_session=True)
        self.pid = self.process.pid

    @property
    def samplefs(self) -> Path:
        return BUILD / "with-symbols" / "samplefs"


def make_all(path: Path) -> None:
    """Create a directory, even if its path is longer than mkdir(2) allows at once."""
    at = os.open("/", os.O_RDONLY)
    try:
        for name in path.parts[1:]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
    finally:
        os.close(at)


def harmless(text: str) -> None:
    """Assert that no text controls a terminal."""
    bad = {c for c in text if c != "\n" and unicodedata.category(c)[0] == "C"}
    assert not bad, text


def run(*words: object, status: int | tuple[int, ...] = 0, inside: Inside = ()) -> str:
    """Return standard output of a command of fusetools that ends with that status."""
    done = subprocess.run(
        [*inside, *COMMAND, *map(str, words)], capture_output=True, env=environment(), timeout=120
    )
    output, errors = done.stdout.decode(), done.stderr.decode()  # not UTF-8 raises an error
    assert "Traceback" not in errors and "unexpected" not in errors, errors
    assert done.returncode in (status if isinstance(status, tuple) else (status,)), output + errors
    harmless(output)
    harmless(errors)
    return output


def trace(*words: object) -> list[dict[str, object]]:
    """Return lines of trace about a caller that lists directories all the time."""
    mount = words[-1]
    caller = subprocess.Popen(["sh", "-c", 'while ls -R "$0"; do :; done', str(mount)],
        stdout=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    tracing = subprocess.Popen(
        [*COMMAND, "trace", "--mount", str(mount), *map(str, words[:-1])],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert tracing.stdout
        lines = [tracing.stdout.readline().decode() for _ in range(20)]
    finally:
        tracing.send_signal(signal.SIGINT)
        os.killpg(caller.pid, signal.SIGKILL)
        caller.wait()
        assert tracing.communicate(timeout=HANGS) and tracing.returncode in (0, 4)
    for line in lines:
        harmless(line)
    return [json.loads(line) for line in lines] if "--json" in words else []


Form = tuple[str, ...]
TEXT: Form = ()
JSON: Form = ("--json",)


def every_command(mount: SampleMount, folder: Path, *forms: Form) -> fusetools.Recording:
    """Run each command that looks at this host, in these forms. Return a recording of `ls`."""
    for form in forms:
        for words in (["doctor"], ["stuck"], ["top", "--once", "--interval", "0.3"]):
            answer = run(*words, *form)
            if words[0] == "doctor" and form == JSON:
                assert str(mount.path) in [m["path"] for m in json.loads(answer)["mounts"]]
        assert all(line["operation"] for line in trace(*form, mount.path))
    data = folder / "perf.data"
    work = ["sh", "-c", 'ls "$0" > /dev/null; stat "$0/dir-00" > /dev/null', mount.path]
    run("record", "--mount", mount.path, "-o", data, "--", *work)
    for form in forms:
        for command in ("hist", "count", "stages", "slow", "errors", "queue"):
            run(command, "-i", data, *form, status=(0, 1))
    return fusetools.open(data)


def called(recording: fusetools.Recording) -> dict[str, int]:
    return {c.function: c.count for c in recording.counts().counts}


def holds(recording: fusetools.Recording) -> None:
    counts = called(recording)
    assert counts["cvmfs_opendir"] == 1 and counts["cvmfs_lookup"] >= 1, counts


def test_a_mount_point_that_steers_terminals(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mount = Odd(tmp_path_factory.mktemp("o"), tmp_path / ODD / "mount")
    try:
        wait_until(lambda: b"samplefs" in Path("/proc/self/mountinfo").read_bytes(), "the mount")
        holds(every_command(mount, tmp_path, TEXT, JSON))
    finally:
        end(mount)


def end(mount: SampleMount) -> None:
    """Everything of the recording is removed."""
    mount.process.terminate()
    try:
        mount.process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(mount.process.pid, signal.SIGKILL)
        mount.process.wait()
    subprocess.run(["umount", "-l", mount.path], stderr=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("name", "form"),
    [("(x) R \x1b[31mred", TEXT), pytest.param("\udcff\nName: b", JSON, marks=pytest.mark.variant)],
)
def test_a_daemon_of_an_odd_name(
    name: str, form: Form, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("o")
    build = folder / "build"
    shutil.copytree(BUILD / "with-symbols", build)
    (build / "samplefs").rename(build / name)
    mount = Odd(folder, folder / "mount", build, name)
    try:
        mount.wait()
        holds(every_command(mount, tmp_path, form))
    finally:
        end(mount)


RENAMES = """
import ctypes, os, sys
names = b"\\x1b[2J\\xff%d", b"%d) R 1 1", b"\\n%d\\n", b"\\xe2\\x80\\xae%d"
for number in range(300):
    ctypes.CDLL(None).prctl(15, names[number % 4] % number, 0, 0, 0)
    os.stat(sys.argv[1] + "/dir-00/file-000")
"""


def test_a_caller_that_renames_itself(sample_mount: Mounter, tmp_path: Path) -> None:
    mount = sample_mount()
    data = tmp_path / "perf.data"
    work = [sys.executable, "-c", RENAMES, mount.path]
    run("record", "--mount", mount.path, "-o", data, "--", *work)
    assert called(fusetools.open(data))["cvmfs_getattr"] >= 300
    for words in (
        ["slow"],
        ["errors"],
        ["stages", "--by", "comm"],
        ["queue"],
        ["export", "--format", "csv", "-o", "-"],
    ):
        run(*words, "-i", data, status=(0, 1))
    page = tmp_path / "flame.html"
    run("flame", "-i", data, "--offcpu", "-o", page)
    harmless(page.read_text())


def test_a_path_of_4000_characters(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Longer than a line of tracefs; as long as mount(2) allows."""
    long = tmp_path
    while len(str(long)) < 3800:
        long = long / ("d" * 190)
    mount = Odd(tmp_path_factory.mktemp("o"), long)
    try:
        mount.wait()
        holds(every_command(mount, tmp_path, TEXT))
    finally:
        end(mount)


def test_a_program_that_is_deleted_and_a_library_that_is_replaced(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The daemon continues with its open file; so do the probes."""
    folder = tmp_path_factory.mktemp("o")
    build = folder / "build"
    shutil.copytree(BUILD / "with-symbols", build)
    mount = Odd(folder, folder / "mount", build)
    try:
        mount.wait()
        library = mount.library
        work = f"rm {library}; cp {BUILD}/stripped/{library.name} {library}; ls {mount.path}"
        data = tmp_path / "replaced.data"
        run("record", "--mount", mount.path, "-o", data, "--", "sh", "-c", work + "/dir-00")
        counts = called(fusetools.open(data))
        assert counts["cvmfs_opendir"] == 1, counts
        shutil.rmtree(build)
        recording = every_command(mount, tmp_path, TEXT)
        # A deleted file has a name in /proc/PID/map_files.
        holds(recording)
    finally:
        end(mount)


def test_a_daemon_in_namespaces_of_its_own(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The daemon has namespaces of its own of users, mounts and processes: its mount is visible
    there alone."""
    folder = tmp_path_factory.mktemp("o")
    before = ("unshare", "-U", "--map-root-user", "-m", "-p", "-f", "--mount-proc", "--kill-child")
    mount = Odd(folder, folder / "mount", before=before)
    try:
        samplefs = 0

        def found() -> bool:
            nonlocal samplefs
            children = Path(f"/proc/{mount.pid}/task/{mount.pid}/children").read_text().split()
            samplefs = int(children[0]) if children else 0
            return bool(samplefs) and f" {mount.path} " in (
                Path(f"/proc/{samplefs}/mountinfo").read_text()
            )

        wait_until(found, "the mount")
        for words in (["doctor"], ["stuck"]):
            run(*words)
            assert str(mount.path) in run(*words, "--json")
        data = tmp_path / "perf.data"
        work = ["nsenter", "-t", samplefs, "-U", "-m", "-p", "ls", mount.path]
        run("record", "--mount", mount.path, "-o", data, "--", *work)
        counts = called(fusetools.open(data))
        assert counts["FUSE_OPENDIR"] == counts["cvmfs_opendir"] == 1
    finally:
        os.kill(samplefs, signal.SIGKILL)
        end(mount)


MANY = """
set -e
mount --make-rprivate /
mkdir -p {folder}/m
mount -t tmpfs none {folder}/m
cd {folder}/m
mkdir s
{python} - {mount}/dir-00 <<'EOF'
import ctypes, os, sys
c = ctypes.CDLL(None, use_errno=True)
for n in range({each}):
    for kind, source in ("f", sys.argv[1]), ("t", "s"):
        name = f"{{kind}}{{n}}"
        os.mkdir(name)
        if c.mount(source.encode(), name.encode(), None, 4096, None):
            sys.exit(os.strerror(ctypes.get_errno()))
EOF
exec "$@"
"""


def test_ten_thousand_mounts(sample_mount: Mounter, tmp_path: Path) -> None:
    """Half of them are bind mounts of one FUSE file system, as containers have them."""
    mount = sample_mount()
    script = MANY.format(folder=tmp_path, mount=mount.path, python=sys.executable, each=5000)
    inside = ("unshare", "-m", "sh", "-c", script, "sh")
    for words in (["doctor"], ["stuck"], ["top", "--once", "--interval", "0.3"]):
        run(*words, inside=inside)
    data = tmp_path / "perf.data"
    run("record", "--mount", mount.path, "-o", data, "--", "ls", mount.path, inside=inside)
    assert called(fusetools.open(data))["cvmfs_opendir"] == 1
