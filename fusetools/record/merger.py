"""Merging, in a process that has given up all rights: it reads what daemons and containers have
made of their programs.

It is handed the recordings, the place of the result and the kernel's symbols as open files. The
programs are opened for it by a child of its own, which stays root, reads nothing of them, and hands
over programs and libraries alone: not even a merger that a hostile file has taken over gets at
anything else. Either may hang, for a file system may: then both are given up.
"""

from __future__ import annotations

import array  # noqa: F401  socket.recv_fds needs it when nothing may be read
import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fusetools.core import native
from fusetools.host.files import Files, open_regular
from fusetools.host.processes import family, read_stat, until_ended
from fusetools.host.rights import drop_privileges, limit_memory
from fusetools.record.signals import with_parent

if TYPE_CHECKING:
    from typing_extensions import Unpack

STUCK = 10.0  # seconds without a sign of life
MEMORY = 4 << 30  # bytes beside the recordings, and for each CPU's thread
MEMORY_OF_A_THREAD = 256 << 20
LONGEST = 1 << 16  # bytes of a path
LONG = 200  # characters of a complaint
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from fusetools.record.merger import main; main()"
_PROGRAMS = (2, 3)  # ET_EXEC, ET_DYN: no core dump


class Stuck(Exception):
    """Why there is no result: it was given up, or ended early."""


class Merger:
    """The process, which is there 0.1 s after it was begun, and merges once. ``alone``: by a single
    thread."""

    def __init__(self, alone: bool = False) -> None:
        parent = os.getpid()
        # What it prints is a defect's traceback, of which the user gets one line.
        self._complaints = os.fdopen(os.memfd_create("merger"), "w+", errors="replace")

        def prepare() -> None:
            with_parent(parent, signal.SIGKILL)

        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, *(os.path.abspath(path) for path in sys.path if path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd="/",
            env={**os.environ, "RAYON_NUM_THREADS": "1"} if alone else None,
            text=True,
            preexec_fn=prepare,
        )

    def merge(
        self,
        inputs: list[str],
        output: str,
        session: str,
        give_up: Callable[[], bool],
        meanwhile: Callable[[], None] = lambda: None,
        **more: Unpack[native.MergeOptions],
    ) -> native.MergeInfo:
        """As the core's merge, into a file that is not there. ``give_up`` is asked now and then;
        ``meanwhile`` is called once, when it has begun.
        CoreError; Stuck: it was given up, waits for a file system that does not answer, or died."""
        maps = [(*row[:5], row[5].hex(), row[6]) for row in more.pop("maps", [])]
        query = json.dumps([inputs, output, session, {**more, "maps": maps}])
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as to:
            to.write(query)
        meanwhile()
        alive, seen = time.monotonic(), (0, 0)
        while process.poll() is None:
            until_ended(process.pid, 0.05)
            now = _signs(process.pid, output)
            hangs = any(member.hung for member in family(Files(Path("/")), process.pid))
            if now != seen or not hangs:
                alive, seen = time.monotonic(), now
            if time.monotonic() - alive > STUCK or give_up():
                self.close()
                raise Stuck("a file of the daemon's does not answer")
        with process.stdout:
            text = process.stdout.read()
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise Stuck(f"the process that merges ended: {self._why()}") from error
        finally:
            self._complaints.close()
        if "error" in answer:
            raise native.CoreError(*answer["error"])
        answer["left_out"] = {str(name): int(n) for name, n in answer["left_out"].items()}
        answer["stacks"] = tuple(answer["stacks"])
        answer["kept"] = tuple(answer["kept"]) if answer.get("kept") else None
        answer["session_at"] = [tuple(place) for place in answer["session_at"]]
        result: native.MergeInfo = answer
        return result

    def _why(self) -> str:
        """Return why it ended, in one line."""
        status = self._process.returncode
        if status is not None and status < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-status).name
        self._complaints.seek(0)
        lines = [line.strip() for line in self._complaints.read(1 << 20).splitlines()]
        return next((line[:LONG] for line in reversed(lines) if line), f"exit status {status}")

    def close(self) -> None:
        """Ends it, whatever it does; one that hangs is left."""
        self._complaints.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _signs(pid: int, output: str) -> tuple[int, int]:
    """What changes while it works: its CPU time, and what it has written."""
    process = read_stat(Files(Path("/")), pid)
    if process:
        with contextlib.suppress(OSError):
            return process.ticks, os.stat(output).st_size
    return 0, 0


def main() -> None:
    """In the process: what is asked on the standard input, the answer on the standard output."""
    try:
        inputs, output, session, more = json.load(sys.stdin)
    except json.JSONDecodeError:  # who asks was killed before it had
        return
    opener = Opener()
    native.keep_vdso()
    paths = [*inputs, output]
    try:
        size = sum(os.stat(path).st_size for path in inputs)
        inputs = [_by_number(path, os.O_RDONLY) for path in inputs]
        output = _by_number(output, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if more.get("kallsyms"):
            more["kallsyms"] = _by_number(more["kallsyms"], os.O_RDONLY)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        _answer({"error": ["cannot merge the recording", why]})
        return
    drop_privileges()
    limit_memory(size + MEMORY + MEMORY_OF_A_THREAD * (os.cpu_count() or 1), None)
    threads = {int(thread): pid for thread, pid in more.get("threads", {}).items()}
    bundles = [(event, field, list(map(tuple, of))) for event, field, of in more["bundles"]]
    options: native.MergeOptions = more
    options["maps"] = [(*row[:5], bytes.fromhex(row[5]), row[6]) for row in more["maps"]]
    options["threads"], options["bundles"] = threads, bundles
    options["window"] = tuple(more["window"]) if more.get("window") else None
    options["span"] = tuple(more["span"]) if more.get("span") else None
    options["opener"] = opener
    try:
        info: object = native.merge(inputs, output, session, **options)
    except native.CoreError as error:
        words = list(map(str, error.args))
        for number, path in zip([*inputs, output], paths):
            words = [word.replace(number, os.path.basename(path)) for word in words]
        info = {"error": words}
    _answer(info)


def _answer(info: object) -> None:
    """To who asked, if it has not been killed meanwhile."""
    data = json.dumps(info).encode()
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(1, data) :]


def _by_number(path: str, flags: int) -> str:
    return f"/proc/self/fd/{os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)}"


class Opener:
    """Opens programs for this process once it has given up its rights: a child that keeps them."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()  # the core asks from several threads
        parent = os.getpid()
        if os.fork() == 0:
            try:
                self._socket.close()
                ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
                if os.getppid() == parent:
                    _serve(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def __call__(self, path: str | os.PathLike[str]) -> int:
        """A descriptor for reading. OSError: it cannot be opened, or is no program."""
        query = os.fsencode(path)
        if not query or len(query) > LONGEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        with self._lock:
            self._socket.send(query)
            answer, descriptors, _, _ = socket.recv_fds(self._socket, 16, 1)
        if not descriptors:
            number = int(answer or errno.EPIPE)
            raise OSError(number, os.strerror(number))
        return descriptors[0]


def _serve(questions: socket.socket) -> None:
    """In the child: opens what is asked for, until nobody asks."""
    while query := questions.recv(LONGEST + 1):
        try:
            descriptor = open_program(os.fsdecode(query))
        except OSError as error:
            questions.send(str(error.errno or errno.EIO).encode())
            continue
        socket.send_fds(questions, [b"0"], [descriptor])
        os.close(descriptor)


def open_program(path: str) -> int:
    """Opens an ELF program or library. OSError: it cannot be opened, or is none."""
    descriptor = open_regular(path)
    try:
        head = os.pread(descriptor, 18, 0)
        kind = int.from_bytes(head[16:18], "big" if head[5:6] == b"\2" else "little")
        if head[:4] == b"\x7fELF" and kind in _PROGRAMS:
            return descriptor
        raise OSError(errno.ENOEXEC, os.strerror(errno.ENOEXEC), path)
    except BaseException:
        os.close(descriptor)
        raise
