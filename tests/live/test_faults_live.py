"""Faults in each phase of a recording.

Nothing is left behind, the recorded data can be read, and the exit status tells what happened. Runs
a part of the matrix; FAULTS=all: all of it (make test-faults). FAULTS=guest: faults that hit a
whole machine, to be run in a virtual one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import leftovers
import pytest
from left import RUN
from mounts import wait_until
from recording import COMMAND, children, environment, session
from sample import Mounter, SampleMount

import fusetools

pytestmark = pytest.mark.live

PHASES = ("arming", "recording", "ending", "merging", "cleaning")
FAULTS = (
    *("kill", "term", "int", "hup", "oom", "enospc", "eio", "gone output", "daemon killed"),
    *("daemon stopped", "unmounted", "workload killed", "workload hangs", "perf killed"),
    *("tracefs unmounted", "all stopped"),
)
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "hup": signal.SIGHUP,
}
# Impossible combinations: perf and the workload have ended by then.
NOT = {
    *((fault, phase) for fault in ("workload killed", "workload hangs") for phase in PHASES[2:]),
    ("workload hangs", "arming"),
    ("perf killed", "merging"),
    ("perf killed", "cleaning"),
}
# Each fault and each phase about twice; those in MORE are variants.
FEW = (
    *(("kill", phase) for phase in PHASES),
    *(
        ("term", "arming"),
        ("int", "merging"),
        ("int", "cleaning"),
        ("tracefs unmounted", "arming"),
        ("enospc", "recording"),
        ("perf killed", "recording"),
        ("eio", "recording"),
        ("all stopped", "recording"),
    ),
)
MORE = (
    *(("kill", phase) for phase in ("ending", "cleaning")),
    *(("int", "cleaning"), ("eio", "recording")),
)
# Only in a virtual machine: these hit the whole machine, or need function_graph.
OF_MACHINES = (("trace-cmd killed", "recording"), ("cpu unplugged", "recording"))


def cells(faults: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((fault, phase) for fault in faults for phase in PHASES)


CELLS = {
    "": FEW,
    "all": cells(FAULTS),
    "guest": OF_MACHINES,
}[os.environ.get("FAULTS", "")]
CHOSEN = [cell for cell in CELLS if cell not in NOT]
MOMENTS = random.Random(14)
MEMORY = Path("/sys/fs/cgroup/memory")
CPU = Path("/sys/devices/system/cpu/cpu1/online")
# A library for a daemon that writes files: every write fails once a file BROKEN exists.
EIO = """
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
#include <sys/syscall.h>
static int broken(void) { errno = EIO; return access(getenv("BROKEN"), F_OK) == 0; }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return broken() ? (errno = EIO, -1) : syscall(SYS_pwrite64, fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
  return pwrite(fd, data, size, at);
}
int fsync(int fd) { return broken() ? (errno = EIO, -1) : syscall(SYS_fsync, fd); }
"""


class Case:
    """One recording, and its fault."""

    def __init__(self, mount: SampleMount, folder: Path, output: Path) -> None:
        self.mount, self.folder, self.output = mount, folder, output
        self.go, self.began = folder / "go", folder / "began"
        work = (
            f"exec >/dev/null 2>&1; ls -R {mount.path}; echo > {self.began}; "
            f"until [ -e {self.go} ]; do sleep 0.02; done; "
            f"[ ! -e {folder}/hang ] || cat {mount.path}/dir-00/file-000; exit 0"
        )
        words = ["record", "--mount", mount.path, "-o", output, "--", "sh", "-c", work]
        self.log = folder / "log"
        self.process = self.start([*COMMAND, *map(str, words)])

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        # Mount in a mount namespace: an unmount there leaves the mount for all others.
        inside = ["unshare", "-m", "--propagation", "private"]
        with self.log.open("ab") as log:
            return subprocess.Popen([*inside, *words], stdout=log, stderr=log, env=environment())

    def state(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, object] = json.loads((RUN / "0" / "state.json").read_text())
            return found
        return {}

    def ended(self) -> bool:
        return self.process.poll() is not None

    def until(self, phase: str) -> None:
        """Wait until the recording is in that phase."""
        if phase == "arming":
            wait_until(lambda: bool(self.state().get("probes")) or self.ended(), phase)
            return
        wait_until(lambda: self.began.exists() or self.ended(), "the workload")
        if phase == "recording":
            return
        if phase == "cleaning":
            self.process.kill()
            self.process.wait()
            self.process = self.start([*COMMAND, "clean"])
            time.sleep(MOMENTS.uniform(0, 0.3))
            return
        self.go.touch()
        if phase == "ending":
            pid = self.process.pid
            wait_until(lambda: not children(pid, "sh") or self.ended(), phase)
        else:
            wait_until(lambda: self.merges() or self.ended(), phase)

    def merges(self) -> bool:
        """Return whether the process that merges runs."""
        found = False
        with contextlib.suppress(OSError):
            pid = self.process.pid
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with contextlib.suppress(OSError):
                    found |= (
                        b"fusetools.record.merger" in Path(f"/proc/{child}/cmdline").read_bytes()
                    )
        return found

    def strike(self, fault: str, phase: str) -> None:
        pid = self.process.pid
        if fault in SIGNALS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGNALS[fault])
        elif fault == "oom":
            out_of_memory(pid)
        elif fault == "enospc":
            with contextlib.suppress(OSError), (self.output.parent / "filler").open("wb") as file:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
        elif fault == "eio":
            (self.folder / "broken").touch()
        elif fault == "gone output":
            for other in leftovers.processes([f"bindfs {self.folder}".replace(" ", "\0")]):
                os.kill(other, signal.SIGKILL)
        elif fault == "daemon killed":
            os.kill(self.mount.pid, signal.SIGKILL)
            self.mount.process.wait()
        elif fault == "daemon stopped":
            os.kill(self.mount.pid, signal.SIGSTOP)
            if phase == "arming":  # so the workload hangs from the beginning
                wait_until(lambda: self.hangs("ls") or self.ended(), fault)
                self.process.send_signal(signal.SIGINT)
        elif fault == "all stopped":
            stopped = [pid, *descendants(pid)]
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for each in stopped:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each, number)
                time.sleep(0.5)
        elif fault == "trace-cmd killed":
            for other in leftovers.processes(["trace-cmd\0record"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
        elif fault == "cpu unplugged":
            CPU.write_text("0")
        elif fault == "unmounted":
            subprocess.run(["umount", "-l", self.mount.path], check=True)
        elif fault == "workload killed":
            # Until it is released it has the name of its parent.
            own = Path(f"/proc/{pid}/comm").read_text().strip()
            if phase == "arming":
                wait_until(lambda: bool(self.state().get("processes")), "the workload")
            for child in children(pid, "sh") or children(pid, own):
                os.kill(child, signal.SIGKILL)
        elif fault == "workload hangs":
            os.kill(self.mount.pid, signal.SIGSTOP)
            (self.folder / "hang").touch()
            self.go.touch()
            wait_until(lambda: self.hangs("cat"), fault)
            time.sleep(0.1)
            self.process.send_signal(signal.SIGINT)
        elif fault == "perf killed":
            if phase == "arming":
                wait_until(lambda: bool(perfs(pid)) or self.ended(), "perf")
            for child in perfs(pid):
                os.kill(child, signal.SIGKILL)
        elif fault == "tracefs unmounted" and not self.ended():
            ours, theirs = os.stat("/proc/self/ns/mnt"), os.stat(f"/proc/{pid}/ns/mnt")
            if ours.st_ino == theirs.st_ino:
                pytest.fail("it is not in a mount namespace of its own")
            inside = ["nsenter", "-t", str(pid), "-m"]
            subprocess.run([*inside, "umount", "-l", "/sys/kernel/tracing"], check=False)
        self.go.touch()

    def hangs(self, name: str) -> bool:
        """Return whether the workload runs that command."""
        return any(children(shell, name) for shell in children(self.process.pid, "sh"))

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def before_the_program(text: str) -> bool:
    """Return whether Ctrl-C hit Python itself, before `fusetools.__main__.run`: nobody catches it
    there."""
    return "KeyboardInterrupt" in text and ", in run\n" not in text


def perfs(pid: int) -> list[int]:
    return children(pid, "perf") + children(pid, "perf-exec")


def out_of_memory(pid: int) -> None:
    """Run the kernel's OOM killer in a group of these processes without free memory."""
    if not (MEMORY / "memory.limit_in_bytes").exists():
        pytest.skip("needs the memory controller of cgroup v1")
    group = MEMORY / f"test-faults-{os.getpid()}"
    group.mkdir(exist_ok=True)
    (group / "memory.limit_in_bytes").write_text("64K")
    for member in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text(str(member))


def descendants(pid: int) -> list[int]:
    below: list[int] = []
    with contextlib.suppress(OSError):
        below = list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return below + [other for child in below for other in descendants(child)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[Path]:
    """A file system whose daemon can be killed."""
    if shutil.which("bindfs") is None:
        pytest.skip("needs bindfs")
    under, place = tmp_path / "under", tmp_path / "fragile"
    under.mkdir()
    place.mkdir()
    source, library = tmp_path / "eio.c", tmp_path / "eio.so"
    source.write_text(EIO)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    more = {"LD_PRELOAD": str(library), "BROKEN": str(tmp_path / "broken")}
    subprocess.run(["bindfs", under, place], check=True, env={**os.environ, **more})
    yield place
    subprocess.run(["umount", "-l", place], check=False)


def expected(fault: str, phase: str) -> set[int]:
    """Return the exit statuses that tell the truth."""
    number = SIGNALS.get(fault, 0)
    if fault == "kill":
        return {-9}
    if phase == "cleaning":
        return {0, 1} | ({-number, 128 + number} if number else {-9} if fault == "oom" else set())
    if number:
        return {"arming": {1}, "recording": {128 + number}}.get(phase, {0})
    return {
        "oom": {1, -9, 137},
        "enospc": {0, 1},
        "eio": {0, 1} if phase == "merging" else {1},
        "gone output": {0, 1} if phase == "merging" else {1},
        "daemon killed": {0},
        "daemon stopped": {124, 130} if phase == "arming" else {0},
        "all stopped": {0},
        "unmounted": {0, 1} if phase == "arming" else {0},
        "workload killed": {137} if phase == "recording" else {1, 137},
        "workload hangs": {124, 130},
        "perf killed": {0, 1} if phase == "ending" else {1},
        "tracefs unmounted": {0, 1},
        "trace-cmd killed": {1},
        "cpu unplugged": {0, 1},
    }[fault]


@pytest.mark.parametrize(
    ("fault", "phase"),
    [pytest.param(*cell, marks=pytest.mark.variant if cell in MORE else ()) for cell in CHOSEN],
)
def test_fault(
    fault: str, phase: str, sample_mount: Mounter, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mount = sample_mount()
    places = {"enospc": "small", "gone output": "fragile", "eio": "fragile"}
    folder: Path = request.getfixturevalue(places[fault]) if fault in places else tmp_path
    RUN.mkdir(exist_ok=True)
    before = leftovers.state()
    case = Case(mount, tmp_path, folder / "perf.data")
    try:
        case.until(phase)
        case.strike(fault, phase)
        status = case.process.wait(timeout=120)
        while phase == "cleaning" and before_the_program(case.text()):
            case.log.write_text("")
            case.until(phase)
            case.strike(fault, phase)
            status = case.process.wait(timeout=120)
    finally:
        case.process.kill()
        case.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(mount.pid, signal.SIGCONT)
        if fault == "cpu unplugged":
            CPU.write_text("1")
        group = MEMORY / f"test-faults-{os.getpid()}"
        if group.exists():
            wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group's end")
            group.rmdir()
    text = case.text()
    for name in (folder / "filler", tmp_path / "broken"):
        with contextlib.suppress(OSError):
            name.unlink()
    clean = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True, env=environment())
    assert clean.returncode == 0, clean.stderr + text
    if status >= 0 and phase != "cleaning" and fault != "tracefs unmounted":
        assert clean.stdout == "nothing was left\n", text
    assert "Traceback" not in text, text
    assert status in expected(fault, phase), text
    after = leftovers.state()
    if fault in ("unmounted", "daemon killed", "gone output"):
        del after["mounts"], before["mounts"]
    assert after == before
    wait_until(lambda: not leftovers.processes([str(case.output)]), "the end of all processes")
    if fault == "gone output":
        return
    assert leftovers.hidden(folder) == []
    parts = sorted(folder.glob("perf.data*"))
    # Before the recording began there may be no data.
    assert parts or phase == "arming" or fault in ("enospc", "oom", "eio"), text
    for part in parts:
        if part.name.endswith((".ftrace", ".tasks")):
            continue
        try:
            whole(part, tmp_path).counts()
        except fusetools.Error as error:
            assert fault in ("oom", "perf killed", "enospc", "eio") or phase == "arming", text
            assert re.search("never finished|cut short|have no name", error.why), error


def whole(part: Path, folder: Path) -> fusetools.Recording:
    """The recording can be assembled from the parts that its error names."""
    try:
        return fusetools.open(part)
    except fusetools.Error as error:
        if not error.fix.startswith("fusetools merge "):
            raise
        words = shlex.split(error.fix)[1:]
        done = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return fusetools.open(folder / "merged.data")


def test_a_disk_that_others_fill(sample_mount: Mounter, small: Path, tmp_path: Path) -> None:
    """The recording ends while there is room to keep it, and is complete."""
    case = Case(sample_mount(), tmp_path, small / "perf.data")
    case.until("recording")
    disk = os.statvfs(small)
    with (small / "filler").open("wb") as file:
        file.write(bytes(disk.f_bavail * disk.f_frsize - (16 << 20)))
    wait_until(lambda: "is written; the workload" in case.text() or case.ended(), "the end")
    case.go.touch()
    assert case.process.wait(timeout=120) == 1, case.text()
    full = f"the recording ended early: No space left on device for more of it ({small})"
    assert full in " ".join(case.text().split())
    counts = {c.function: c.count for c in fusetools.open(small / "perf.data").counts().counts}
    assert counts.get("cvmfs_opendir", 0) > 0, case.text().replace("\n", " | ")[-1500:]
    assert session(small / "perf.data")["command"][0] == "sh"
