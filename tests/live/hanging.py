"""Mounts that hang (hangfs.c), their callers, and the output of `fusetools stuck` about them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

import mounts
from mounts import wait_until

from fusetools.stuck import bounded, children
from fusetools.stuck.moment import Task

EMULATED = "FUSETOOLS_EMULATED" in os.environ  # tests/vm sets it
PATIENT = Path(__file__).parent / "patient.py"
FUSETOOLS = Path(sys.prefix) / "bin" / "fusetools"
LONG = 1.2  # seconds that callers wait before the look: longer than stuck's threshold
# The same where callers count as stuck earlier; an emulated machine keeps stuck's own threshold.
SOON, EARLY = (LONG, "-") if EMULATED else (0.4, "0.2")


def user_stack(
    pid: int,
    tid: int,
    hangs: Callable[[int, str], bool] = lambda *_: False,
    places: Sequence[str] = (),
) -> tuple[list[str], bool]:
    """Return the functions of a sleeping thread, innermost first, and whether the stack is
    complete.

    ``hangs``, ``places``: as in children.user_stacks().
    """
    _, _, row = children.task((pid, tid))
    assert row is not None
    _, _, sp, pc = row["syscall"]
    task = Task(pid, tid, "", "S", sp=sp or 0, pc=pc or 0)

    def stacks(pid: int) -> list[tuple[int, list[str], bool]]:
        return children.user_stacks(pid, [task], hangs, list(places))

    ((_, rows),) = bounded.each([pid], stacks, mounts.HANGS, bounded.Limit(60))
    assert rows is not None
    ((_, names, whole),) = rows
    return names, whole


class Hanging:
    """A mount of hangfs, and callers that wait in it; all of them end with it."""

    def __init__(self, program: Path, folder: Path, *arguments: str) -> None:
        self.path = folder
        folder.mkdir()
        self.output = folder.parent / f"{folder.name}.log"
        with self.output.open("wb") as log:
            self.daemon = subprocess.Popen(
                [program, folder, *arguments],
                stdout=log,
                preexec_fn=mounts.end_with_the_test,
            )
        self.thread("mounted")
        self.connection = mounts.connection(folder)
        self.callers: list[subprocess.Popen[bytes]] = []
        self.began: dict[int, float] = {}

    def thread(self, name: str) -> int:
        """Return the id of the last thread that has printed ``name``; wait for the first one."""
        found: list[int] = []

        def said() -> bool:
            lines = [line.split() for line in self.output.read_text().splitlines()]
            found[:] = [int(line[1]) for line in lines if len(line) == 2 and line[0] == name]
            return bool(found)

        wait_until(said, f"the thread that is {name}")
        return found[-1]

    def run(self, *command: object) -> subprocess.Popen[bytes]:
        """Start a caller of another kind. Return once it waits."""
        caller = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.callers.append(caller)
        stat = Path(f"/proc/{caller.pid}/stat")
        names = ("request_wait_answer", "folio_wait", "wait_on_page", "__lock_page", "fuse_")

        def waits() -> bool:
            assert caller.poll() is None
            asleep = stat.read_text().rpartition(")")[2].split()[0] in "SD"
            return asleep and any(
                name in Path(f"/proc/{caller.pid}/stack").read_text() for name in names
            )

        wait_until(waits, "a caller that waits")
        return caller

    def call(self, *names: str) -> None:
        """Start callers that look up these names, each in a directory of its own."""
        for name in names:
            number = len(self.callers) % 10
            path = str(self.path / f"d{number}" / name)
            caller = subprocess.Popen(
                ["stat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self.callers.append(caller)
            wait_until(lambda pid=caller.pid: waits_in_fuse(pid), "a caller that waits")  # type: ignore[misc]
            self.began[caller.pid] = time.monotonic()

    def close(self) -> None:
        # Abort first: a daemon that waits for its own mount cannot be killed.
        set_to_one(self.connection, "abort")
        subprocess.run(["umount", "-l", self.path], check=False)
        with contextlib.suppress(ProcessLookupError):
            for child in Path(f"/proc/{self.daemon.pid}/task").glob("*/children"):
                with contextlib.suppress(OSError, ValueError):
                    for pid in child.read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
        self.daemon.kill()
        self.daemon.wait()
        for caller in self.callers:
            caller.kill()
            caller.wait()


Hang = Callable[..., Hanging]


def waits_in_fuse(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "fuse_" in Path(f"/proc/{pid}/stack").read_text()
    return False


def set_to_one(connection: int, name: str) -> None:
    """Abort a connection through fusectl, mounted in a private mount namespace."""
    script = f"mount -t fusectl none /mnt && echo 1 > /mnt/{connection}/{name}"
    subprocess.run(["unshare", "-m", "sh", "-c", script], check=False, stderr=subprocess.DEVNULL)


def stuck(*arguments: object, older: str = "-") -> tuple[int, dict[str, Any]]:
    """Return the exit status and the result of `fusetools stuck --json`. ``older``: see
    patient.py."""
    # In a guest the command itself has its patience (tests/vm/forked.py).
    command = [FUSETOOLS] if EMULATED else [sys.executable, PATIENT, older]
    done = subprocess.run(
        [*command, "stuck", "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=mounts.HANGS,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def looked_at(mount: Hanging) -> dict[str, Any]:
    time.sleep(SOON)
    status, result = stuck("--mount", mount.path, older=EARLY)
    print(result)  # shown when a test fails
    pids = {mount.daemon.pid, *(caller.pid for caller in mount.callers)}
    threads = {int(path.name) for pid in pids for path in Path("/proc").glob(f"{pid}/task/*")}
    assert not threads & set(result["silent"])  # other processes of the host may be silent
    (found,) = result["mounts"]
    assert status == 3 if found["state"] == "stuck" else status == 0
    return found  # type: ignore[no-any-return]
