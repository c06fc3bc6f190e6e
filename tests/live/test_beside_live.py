"""Commands beside unrelated mounts: no command touches these, and a hanging one stops nothing.

All mounts are in a private mount namespace of the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from mounts import HANGS, end_with_the_test, wait_until
from recording import environment
from sample import BUILD, make_tree
from script import needs_perf

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("leaves_nothing")]

RAWFS = Path(__file__).with_name("rawfs.py")
MARK = "FUSETOOLS_TEST_BESIDE"
# Ways to hang for other mounts: opcodes that a daemon reads and never answers, and a signal.
LOOKUP, GETATTR, STATFS, INIT = 1, 3, 17, 26
WAYS = {
    "drops": (f"{LOOKUP},{GETATTR},{STATFS}", None),
    "stopped": ("", signal.SIGSTOP),
    "never-begun": (f"{INIT}", None),
}


class Apart:
    """A mount namespace with a healthy mount A of the sample file system, and a mount B."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.a, self.b = folder / "A", folder / "B"
        self.a.mkdir()
        self.b.mkdir()
        self.shell = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=end_with_the_test,
        )
        assert self.shell.stdout is not None
        self.shell.stdout.readline()
        env = shutil.which("env")  # by its absolute path, as a test may change PATH
        self.inside = ["nsenter", "-m", "-t", str(self.shell.pid), str(env), "-C", str(folder)]
        self.daemons: list[subprocess.Popen[str]] = []
        tree = make_tree(folder / "tree")
        shutil.copytree(BUILD / "with-symbols", tree / "build")
        self.daemon(BUILD / "with-symbols" / "samplefs", "-f", tree, self.a)
        self.mounted(self.a)

    def daemon(self, *words: object) -> subprocess.Popen[str]:
        daemon = subprocess.Popen(
            [*self.inside, *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_the_test,
        )
        self.daemons.append(daemon)
        return daemon

    def mounted(self, path: Path) -> None:
        table = Path(f"/proc/{self.shell.pid}/mountinfo")
        wait_until(lambda: f" {path} " in table.read_text(), f"the mount {path}")

    def raw(self, silent: str = "", path: Path | None = None) -> subprocess.Popen[str]:
        """The daemon of a mount, by default B, once it has answered the kernel's own requests."""
        daemon = self.daemon(sys.executable, RAWFS, path or self.b, "--silent", silent)
        assert daemon.stdout is not None
        assert daemon.stdout.readline().startswith("ready")
        return daemon

    def start(self, *words: object, **more: str) -> subprocess.Popen[str]:
        command = [*self.inside, sys.executable, "-m", "fusetools", *map(str, words)]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**{MARK: str(os.getpid()), **more}),
            preexec_fn=end_with_the_test,
        )

    def run(self, *words: object, seconds: float = HANGS, **more: str) -> tuple[int, str]:
        """Return exit status and output of a command that ends and leaves no process."""
        process = self.start(*words, **more)
        if words[0] == "trace":
            wait_until(lambda: "ended at" in self.line(process), "the head of the table")
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=seconds)
        assert ours() == [], (words, err)
        return process.returncode, out + err

    def line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()  # their connections end with the namespace
            daemon.wait()
        self.shell.communicate()


def ours() -> list[int]:
    """Return processes of this test's commands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{MARK}={os.getpid()}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def apart(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    needs_perf()
    place = Apart(tmp_path_factory.mktemp("apart"))
    try:
        yield place
    finally:
        place.close()


def commands(apart: Apart) -> list[Sequence[object]]:
    """All commands that look at the host, and some that read a recording."""
    of: list[object] = ["--mount", apart.a]
    return [
        ["record", *of, "-o", "a.data", "--", "ls", apart.a],
        ["record", *of, "--detail", "latency", "-o", "b.data", "--", "ls", apart.a],
        ["record", *of, "-o", "c.data", "--duration", "0.3"],
        ["count", "--live", *of, "--", "ls", apart.a],
        ["doctor"],
        ["stuck"],
        ["top", *of, "--once", "--interval", "0.3"],
        ["trace", *of],
        ["sweep", "--caches", "keep", "--repeat", "1", "-o", "swept", "--", "ls", apart.a],
        ["hist", "-i", "a.data"],
        ["flame", "--offcpu", "-i", "a.data", "-o", "a.svg"],
        ["merge", "a.data", "-o", "merged.data"],
        ["clean"],
    ]


def fly(apart: Apart) -> None:
    """Run a flight recorder that writes a recording on request."""
    recorder = apart.start("record", "--flight", "5", "--mount", apart.a, "-o", "flight.data")
    assert recorder.stderr is not None
    try:
        wait_until(lambda: "flight recorder" in recorder.stderr.readline(), "that it is armed")  # type: ignore[union-attr]
        snapped = apart.start("snap")
        out, err = snapped.communicate(timeout=HANGS)
        assert snapped.returncode == 0 and "flight.data" in out, err
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=HANGS)
    assert ours() == []


@contextlib.contextmanager
def hanging(apart: Apart) -> Iterator[None]:
    """Mounts that hang, each with a caller that waits."""
    daemons, callers = [], []
    quiet = subprocess.DEVNULL
    try:
        for way, (silent, signalled) in WAYS.items():
            path = apart.folder / way
            path.mkdir()
            daemons.append(apart.raw(silent, path))
            if signalled:
                daemons[-1].send_signal(signalled)
            stat = [*apart.inside, "stat", "-f", way]
            callers.append(subprocess.Popen(stat, stdout=quiet, stderr=quiet))
        yield
    finally:
        for daemon in daemons:
            daemon.send_signal(signal.SIGCONT)
            daemon.kill()
        for caller in callers:
            caller.wait()


def test_no_command_needs_a_mount_that_it_is_not_about(apart: Apart) -> None:
    """Mounts that hang stop no command. The daemon of a quiet mount counts its requests: only a
    recording of all mounts concerns this mount, too."""
    daemon = apart.raw()
    with hanging(apart):
        for words in commands(apart):
            status, said = apart.run(*words, seconds=60)
            assert status == (3 if words[0] == "stuck" else 0), (words, said)
            assert "behind" not in said
        status, said = apart.run("record", "-o", "all.data", "--", "ls", apart.a, seconds=60)
        assert status == 0, said
        fly(apart)
    for words in (["top", "--once", "--interval", "0.3"], ["trace"]):
        assert apart.run(*words)[0] == 0
    assert apart.run("record", "--mount", apart.b, "-o", "d.data", "--", "true")[0] == 0
    path = f"{apart.b}:{os.environ['PATH']}"
    status, said = apart.run("record", "-o", "e.data", "--", "true", PATH=path)
    assert status == 0, said
    daemon.terminate()
    out, _ = daemon.communicate(timeout=HANGS)
    assert json.loads(out) == {"init": 1, "lookup": 1}  # the workload searched for its program


def test_a_daemon_that_runs_from_another_mount(apart: Apart) -> None:
    """A mount gets requests for its files only where it is recorded."""
    served, shown = apart.folder / "served", apart.folder / "shown"
    served.mkdir()
    shown.mkdir()
    apart.raw()
    before = apart.folder / "socket"
    watched = apart.folder / "W"
    watched.mkdir()
    tree = apart.folder / "tree"
    apart.daemon(BUILD / "with-symbols" / "samplefs", "-f", "--socket", before, tree, watched)
    apart.mounted(watched)
    apart.daemon(watched / "build" / "samplefs", "-f", served, shown)
    apart.mounted(shown)

    def counted() -> str:
        talk = [str(BUILD / "with-symbols" / "samplefs"), "--talk", str(before), "calls"]
        return subprocess.run(talk, check=True, capture_output=True, text=True).stdout

    def quiet() -> bool:
        first = counted()
        time.sleep(0.3)
        return first == counted()

    wait_until(quiet, "the end of the daemon's own calls")
    asked = counted()
    assert apart.run("record", "--mount", apart.b, "-o", "d.data", "--", "true")[0] == 0
    assert apart.run("top", "--mount", apart.a, "--once", "--interval", "0.3")[0] == 0
    assert counted() == asked
