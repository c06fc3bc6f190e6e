"""A user who may only run `sudo fusetools record` can read nothing of the memory of others.

Victims have a token on their stacks: a process of root's, one of another user's, and one of root's
that is named like the traced daemon. A Case is one recording by the real sudo: with the caller's
limits, options, a fault, a kill. `Spy.reads()` returns the tokens that the caller can read
afterwards, in any readable file and in all output. A new attack is a new field, or new options, of
a Case.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from mounts import end_with_the_test, mount_entry, wait_until
from recording import COMMAND

from fusetools import core

FUSETOOLS = Path(sys.prefix) / "bin" / "fusetools"
RULE = Path("/etc/sudoers.d/fusetools-spying")
RUN = Path("/run/fusetools")
CALLER = "games"  # a user of Debian's base-passwd that owns nothing
OTHER = "nobody"
PERF_DATA = b"PERFILE2"

LIMITS = (
    *("", "ulimit -S -u 1", "ulimit -u 1", "ulimit -S -t 1", "ulimit -t 1", "ulimit -S -f 1"),
    *("ulimit -f 1", "ulimit -S -v 300000", "ulimit -v 300000", "ulimit -S -n 16"),
    *("ulimit -n 16", "ulimit -s 2000", "ulimit -S -d 50000", "ulimit -d 50000"),
    *("umask 0777", "trap '' CHLD TERM"),
)
OPTIONS = (
    (),
    ("--call-graph", "dwarf"),
    ("--call-graph", "dwarf,65528"),
    ("--call-graph", "fp", "--wakers"),
    ("--detail", "stages"),
    ("--detail", "latency"),
)
PHASES = ("arming", "recording", "ending", "merging")
# Faults of the process that merges: each time, or only the first time.
MERGERS = {
    "panics": "panic()",
    "panics once": "first and panic()",
    "aborts": "os.abort()",
    "is killed": "os.kill(os.getpid(), 9)",
    "says nothing": "os._exit(0)",
    "passes on what it read": "m.native.merge = passed_on",
    "has no threads": "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))",
}
# Prefix of its main(): `first` tells whether it is the first merger of this recording.
FAULTY = """
import os, resource, sys
import fusetools.record.merger as m

def panic():
    print("thread '<unnamed>' panicked at core/src/write.rs:1:1:", file=sys.stderr)
    raise BaseException("a defect")

def passed_on(inputs, output, session, **more):
    data = open(inputs[0], "rb").read()
    with open(output, "wb") as file:
        file.write(data)
    return dict(records=1, warnings=[], session_at=[], left_out={{}}, stacks=(0, 0, 0),
                stacks_ns=0, missing_switches=0, kept=(1, 2, False))

try:
    os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
    first = True
except FileExistsError:
    first = False
{fault}
"""
# The program that root runs in the place of fusetools.
WRAPPER = """#!{python}
import sys
import fusetools.record.merger as m
with open({fault!r}) as file:
    m._CODE = m._CODE.replace("; main()", "; exec(%r); main()" % file.read())
sys.argv[0] = "fusetools"
from fusetools.__main__ import run
run()
"""


@dataclass(frozen=True)
class Case:
    """One recording.

    ``limit``: shell code of the caller before sudo; ``kill``: the phase in which the recording gets
    SIGKILL; ``merger``: one of MERGERS; ``full``: its disk fills up at the end; ``flight``: a
    flight recorder that writes one recording. ``options`` may name the victims' pids ({root},
    {other}, {alike}) and the caller's directory ({theirs}).
    """

    limit: str = ""
    options: tuple[str, ...] = ()
    kill: str = ""
    merger: str = ""
    full: bool = False
    flight: bool = False

    def __str__(self) -> str:
        words = [self.limit, *self.options, self.merger and f"merger {self.merger}"]
        words += [self.kill and f"killed while {self.kill}", "disk full" * self.full]
        return ", ".join(word for word in [*words, "flight" * self.flight] if word) or "usual"


def chosen(seed: random.Random) -> Case:
    """Return a random combination."""
    return Case(
        limit=seed.choice(LIMITS),
        options=seed.choice(OPTIONS),
        kill=seed.choice((*[""] * 4, *PHASES)),
        merger=seed.choice((*[""] * 6, "panics once", "has no threads", *MERGERS)),
        full=seed.random() < 0.15,
        flight=seed.random() < 0.15,
    )


class Told(NamedTuple):
    """The outcome of a recording: its exit status and output."""

    status: int
    text: str


class Spy:
    """The victims, a mount of bindfs, and a caller of sudo. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # a directory of root's
        self.theirs = folder / "theirs"
        self.mount = folder / "mount"
        self.tokens: dict[str, bytes] = {}
        self.known = {"theirs": str(self.theirs)}
        self._victims: list[subprocess.Popen[str]] = []
        self._number = 0

    def __enter__(self) -> Spy:
        self.folder.chmod(0o755)
        served = self.folder / "served"
        for place in (self.theirs, self.mount, served):
            place.mkdir()
        for number in range(20):
            (served / f"file-{number}").write_text("x")
        shutil.chown(self.theirs, CALLER, CALLER)
        subprocess.run(["bindfs", served, self.mount], check=True)
        self._allow()
        program = self.folder / "victim"
        source = Path(__file__).with_name("victim.c")
        flags = ["-O1", "-mno-red-zone", "-fomit-frame-pointer"]
        subprocess.run(["cc", *flags, "-o", program, source], check=True)
        victims = {
            "root": ("rooted", ""),
            "other": ("others", OTHER),
            "alike": ("bindfs", ""),
        }
        for whose, (name, user) in victims.items():
            token = secrets.token_bytes(8)
            self.tokens[whose] = token
            number = int.from_bytes(token, "little")
            words = ["setpriv", "--reuid", user, "--regid", "nogroup", "--clear-groups"]
            victim = subprocess.Popen(
                [*(words if user else []), program, name, f"{number:016x}"],
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=end_with_the_test,
            )
            self._victims.append(victim)
            self.known[whose] = str(victim.pid)
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        for victim in self._victims:
            victim.kill()
            victim.wait()
        RULE.unlink(missing_ok=True)
        subprocess.run(["umount", "-l", self.mount], check=False)
        for place in self.theirs.iterdir():
            if mount_entry(place):
                subprocess.run(["umount", "-l", place], check=False)
        for note in RUN.glob("kept.*"):
            note.unlink()

    def _allow(self) -> None:
        wrapper, fault = self.folder / "faulty", self.folder / "fault.py"
        wrapper.write_text(WRAPPER.format(python=sys.executable, fault=str(fault)))
        wrapper.chmod(0o755)
        commands = ", ".join(f"{program} record *" for program in (FUSETOOLS, wrapper))
        RULE.write_text(f"Defaults:{CALLER} env_reset\n{CALLER} ALL=(root) NOPASSWD: {commands}\n")
        RULE.chmod(0o440)
        subprocess.run(["visudo", "-qcf", str(RULE)], check=True)

    def _program(self, case: Case) -> Path:
        if not case.merger:
            return FUSETOOLS
        (self.folder / "mark").unlink(missing_ok=True)
        fault, mark = MERGERS[case.merger], str(self.folder / "mark")
        (self.folder / "fault.py").write_text(FAULTY.format(fault=fault, mark=mark))
        return self.folder / "faulty"

    def run(self, case: Case) -> tuple[Told, Path]:
        """Record. Return the outcome, and the directory of the recording."""
        self._number += 1
        place = self.theirs / str(self._number)
        place.mkdir()
        if case.full:
            words = ["mount", "-t", "tmpfs", "-o", "size=32m", "none", str(place)]
            subprocess.run(words, check=True)
        shutil.chown(place, CALLER, CALLER)
        work = (
            f"ls {self.mount} >/dev/null; cat {self.mount}/file-1 >/dev/null; >{place}/began; "
            f"while [ -e {place}/began ] && [ ! -e {place}/go ]; do sleep 0.05; done"
        )
        options = [option.format(**self.known) for option in case.options]
        words = ["record", "--mount", str(self.mount), "-o", f"{place}/out", *options]
        words += ["--flight", "5"] if case.flight else ["--", "sh", "-c", work]
        with tempfile.TemporaryFile("w+") as log:
            process = self._start([self._program(case), *words], case.limit, log.fileno())
            try:
                self._steer(case, process, place)
                status = process.wait(60)
            except subprocess.TimeoutExpired:
                log.seek(0)
                pytest.fail(f"it did not end, and said: {log.read()}")
            finally:
                if process.poll() is None:
                    for pid in [*_below(process.pid), process.pid]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    process.wait()
            log.seek(0)
            text = log.read()
        return Told(status, text), place

    def _start(self, words: list[object], limit: str, log: int) -> subprocess.Popen[bytes]:
        shell = f'{limit or ":"}; exec /usr/bin/sudo -n "$@"'
        user = ["setpriv", "--reuid", CALLER, "--regid", CALLER, "--clear-groups"]
        command = [*user, "env", "-i", "HOME=/", "PATH=/usr/bin:/bin", "bash", "-c", shell, "bash"]
        return subprocess.Popen(
            [*command, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.theirs,
        )

    def _steer(self, case: Case, process: subprocess.Popen[bytes], place: Path) -> None:
        def ended() -> bool:
            return process.poll() is not None

        def kills(phase: str) -> bool:
            if case.kill != phase:
                return False
            for pid in _recorders(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return True

        wait_until(lambda: ended() or _noted("probes"), "probes")
        if kills("arming"):
            return
        begun = _flies if case.flight else (place / "began").exists
        # A hostile limit may keep the workload from starting.
        wait_until(lambda: ended() or begun() or not _recorders(process.pid), "the workload")
        if kills("recording"):
            return
        time.sleep(0.3)  # the victims run on the CPU now and then
        if case.full:
            with contextlib.suppress(OSError), (place / "filler").open("wb") as file:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
        with contextlib.suppress(OSError):
            (place / "go").touch()
        snap = None
        if case.flight:
            quiet = subprocess.DEVNULL
            snap = subprocess.Popen([*COMMAND, "snap"], stdout=quiet, stderr=quiet)
        if not kills("ending") and case.kill:
            wait_until(lambda: ended() or _merges(process.pid), "the merger")
            kills("merging")
        if snap is not None:
            snap.wait()
        if case.flight or case.full:  # with a full disk the workload does not see its end
            for pid in _recorders(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)

    def reads(self, told: str = "") -> list[str]:
        """Return the victims whose tokens the caller can read in files and in the output."""
        found = [f"{whose} (printed)" for whose in self._in(told.encode())]
        for path in self._readable():
            data = path.read_bytes()
            found += [f"{whose} ({path.name})" for whose in self._in(data)]
            if data.startswith(PERF_DATA):
                found += [f"{whose} ({path.name})" for whose in self._in(plain(path))]
        return found

    def _in(self, data: bytes) -> list[str]:
        forms = {
            whose: (
                token,
                token.hex().encode(),
                f"{int.from_bytes(token, 'little'):x}".encode(),
                str(int.from_bytes(token, "little")).encode(),
            )
            for whose, token in self.tokens.items()
        }
        return [whose for whose, of in forms.items() if any(form in data for form in of)]

    def _readable(self) -> list[Path]:
        """Return all files below the caller's directory that the caller can open."""
        code = (
            "import json, os\n"
            "for at, _, names in os.walk('.'):\n"
            "    for name in names:\n"
            "        path = os.path.join(at, name)\n"
            "        try:\n"
            "            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))\n"
            "        except OSError:\n"
            "            continue\n"
            "        print(json.dumps(path))\n"
        )
        user = ["setpriv", "--reuid", CALLER, "--regid", CALLER, "--clear-groups"]
        words = [*user, sys.executable, "-I", "-c", code]
        done = subprocess.run(words, cwd=self.theirs, capture_output=True, text=True, check=True)
        paths = [self.theirs / json.loads(line) for line in done.stdout.splitlines()]
        return [path for path in paths if path.is_file() and path.name != "filler"]

    def forget(self, place: Path) -> None:
        """Remove the files of a case, those of the caller and those of root."""
        if mount_entry(place):
            subprocess.run(["umount", "-l", place], check=True)
        shutil.rmtree(place)
        for note in RUN.glob("kept.*"):
            note.unlink()


def plain(path: Path) -> bytes:
    """Return a recording's bytes with unpacked records; nothing is left out."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "plain"
        try:
            core.native.merge([str(path)], str(whole), "")
        except core.native.CoreError:
            return b""
        return whole.read_bytes()


def clean() -> str:
    done = subprocess.run([*COMMAND, "clean"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kept(text: str) -> list[Path]:
    """Return the files that a message reports as kept for root."""
    match = re.search(r"fusetools merge (.*) -o ", text)
    return [Path(word) for word in match[1].split()] if match else []


def _noted(name: str) -> bool:
    for path in RUN.glob("[0-9]*/state.json"):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(path.read_text()).get(name):
                return True
    return False


def _flies() -> bool:
    return bool(list(RUN.glob("[0-9]*/perf.*/flight")))


def _below(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _below(int(child))


def _words(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _recorders(pid: int) -> list[int]:
    """Run fusetools itself below sudo (or in its place)."""
    marks = [str(FUSETOOLS).encode() + b"\0record", b"/faulty\0record"]
    own = [
        other
        for other in (pid, *_below(pid))
        if any(mark in _words(other) for mark in marks) and b"sudo" not in _words(other)[:20]
    ]
    return own[:1]


def _merges(pid: int) -> bool:
    return any(b"fusetools.record.merger" in _words(other) for other in _below(pid))
