"""Merging, in a process that has given up all rights: it reads what daemons and containers have
made of their programs.

It is handed the recordings, the place of the result and the kernel's symbols as open files. The
programs are opened for it by a child of its own, which stays root, reads nothing of them, and hands
over programs, libraries, and processes' own lists of the code that they generate: not even a merger
that a hostile file has taken over gets at anything else. A file system may hang: a child that opens
a file there for too long is left, and another one goes on; where reading hangs, the whole process
is given up.
"""

from __future__ import annotations

import array  # noqa: F401  socket.recv_fds needs it when nothing may be read
import contextlib
import errno
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fusetools.core import native
from fusetools.host.files import Files, Patience, end_children, keep_only, open_regular
from fusetools.host.left import note
from fusetools.host.messages import Incoming, framed, receive, send
from fusetools.host.mounts import is_on, of_own_namespace
from fusetools.host.processes import family, read_stat
from fusetools.host.rights import drop_privileges, limit_memory
from fusetools.record.signals import with_parent

if TYPE_CHECKING:
    from typing_extensions import Unpack

STUCK = 10.0  # seconds without a sign of life while it waits for a file system
SILENT = 60.0  # seconds without a sign of life, whatever it does
OPENING = 2.0  # seconds that opening a program may take
OPENERS = 4  # processes that may hang by that, one after the other
MEMORY = 4 << 30  # bytes beside the recordings, and for each CPU's thread
MEMORY_OF_A_THREAD = 256 << 20
KILLED = 1.0  # seconds that it has to end after SIGKILL
LONGEST = 1 << 16  # bytes of a path
LONG = 200  # characters of a complaint
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from fusetools.record.merger import main; main()"
_PROGRAMS = (2, 3)  # ET_EXEC, ET_DYN: no core dump
# Form in which the core asks for the list of a process's generated code.
_GENERATED = re.compile(
    r"/proc/([1-9]\d{0,9})/root((?:/[^/]+)*/(?:perf-\d+\.map|jit-\d+\.dump))", re.DOTALL
)


class Stuck(Exception):
    """Why there is no result: it was given up, or ended early."""


class Merger:
    """A process that merges once. It is ready 0.1 s after it was started.

    ``alone``: it merges with a single thread; ``only``: the only files of programs that it
    opens; None: any.
    """

    only: Sequence[str] | None = None

    def __init__(self, alone: bool = False) -> None:
        parent = os.getpid()
        # It prints only a defect's traceback, of which the user gets one line.
        self._complaints = os.fdopen(os.memfd_create("merger"), "w+", errors="replace")

        def prepare() -> None:
            with_parent(parent, signal.SIGKILL)

        self.hung: list[str] = []  # warnings: programs that could not be opened in time
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, *(os.path.abspath(path) for path in sys.path if path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd="/",
            env={**os.environ, "FUSETOOLS_THREADS": "1"} if alone else None,
            bufsize=0,
            preexec_fn=prepare,
            start_new_session=True,  # so that its children can be killed with it
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
        """Merge as the core does, into a file that does not exist. ``give_up``: called regularly,
        returns whether to stop; ``meanwhile``: called once, when it has begun. Raise CoreError, or
        Stuck if it was stopped, waits for a file system that does not answer, or died."""
        maps = [(*row[:5], row[5].hex(), row[6]) for row in more.pop("maps", [])]
        query = json.dumps([inputs, output, session, {**more, "maps": maps}, self.only]).encode()
        try:
            text = self._ask(framed(query), output, give_up, meanwhile)
            left = self._end()
            if text is None:
                raise Stuck(f"the process that merges ended: {self._why()}")
        finally:
            self.close()
        answer = json.loads(text)
        for pid, path in answer.pop("hung", []):
            waits = f"; pid {pid} is left behind, and waits there" if pid in left else ""
            self.hung.append(f"{path} does not open: its functions have no names{waits}")
        if "error" in answer:
            raise native.CoreError(*answer["error"])
        answer["left_out"] = {str(name): int(n) for name, n in answer["left_out"].items()}
        answer["stacks"] = tuple(answer["stacks"])
        answer["kept"] = tuple(answer["kept"]) if answer.get("kept") else None
        answer["session_at"] = tuple(map(tuple, answer["session_at"]))
        result: native.MergeInfo = answer
        return result

    def _ask(
        self, query: bytes, output: str, give_up: Callable[[], bool], meanwhile: Callable[[], None]
    ) -> bytes | None:
        """Send the query and wait for the answer. None: the process ended without one. Stuck: it
        was given up."""
        assert self._process.stdin is not None and self._process.stdout is not None
        to, back = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(to, False)
        answer = Incoming()
        alive, seen = time.monotonic(), (0, 0)
        while not answer.complete:
            readable, writable, _ = select.select([back], [to] if query else [], [], 0.05)
            if readable and not answer.take(back):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(KILLED)
                return None
            if writable:
                try:
                    query = query[os.write(to, query) :]
                except BrokenPipeError:
                    return None
                if not query:
                    meanwhile()
            now = _signs(self._process.pid, output)
            if now != seen:
                alive, seen = time.monotonic(), now
            silent = time.monotonic() - alive
            if silent > SILENT or (silent > STUCK and self._waits()) or give_up():
                left = self._end()
                waits = f" (pid {left[0]} is left behind, and waits there)" if left else ""
                raise Stuck(f"a file of the daemon's does not answer{waits}")
        return answer.data

    def _waits(self) -> bool:
        """Return whether it or a child of it waits for a file system."""
        return any(member.hung for member in family(Files(Path("/")), self._process.pid))

    def _why(self) -> str:
        """Return why it ended, in one line."""
        status = self._process.returncode
        if status is not None and status < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-status).name
        self._complaints.seek(0)
        lines = [line.strip() for line in self._complaints.read(1 << 20).splitlines()]
        return next((line[:LONG] for line in reversed(lines) if line), f"exit status {status}")

    def _end(self) -> list[int]:
        """Kill it and its children, whatever they do. Return those that have not ended: they wait
        for a file system."""
        group = self._process.pid
        if self._process.returncode is None:  # its number is its own until poll()
            os.killpg(group, signal.SIGKILL)
        end = time.monotonic() + KILLED
        left = [group]
        while left and time.monotonic() < end:
            self._process.poll()
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                left = []
            else:  # zombies, perhaps, of an init that waits for none
                left = _of_session(group)
                time.sleep(0.005)
        note(left)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return left

    def close(self) -> None:
        """End it, whatever it does; one that hangs is left."""
        self._end()
        self._complaints.close()


def _of_session(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    files = Files(Path("/"))
    found = []
    for name in files.list("/proc"):
        stat = read_stat(files, int(name)) if name.isdecimal() else None
        if stat and stat.session == session and stat.state not in "ZX":
            found.append(int(name))
    return found


def _signs(pid: int, output: str) -> tuple[int, int]:
    """Return what changes while it works: its CPU time, and the bytes that it has written."""
    process = read_stat(Files(Path("/")), pid)
    if process:
        with contextlib.suppress(OSError):
            return process.ticks, os.stat(output).st_size
    return 0, 0


def main() -> None:
    """Answer on the standard output what is asked on the standard input. For the merging
    process."""
    query = receive(0)
    if query is None:  # the parent was killed before it asked
        return
    inputs, output, session, more, only = json.loads(query)
    with Opener(only) as opener:
        answer = _merged(inputs, output, session, more, opener)
        answer["hung"] = opener.hung
    with contextlib.suppress(BrokenPipeError):  # the parent was killed meanwhile
        send(1, json.dumps(answer).encode())


def _merged(
    inputs: list[str], output: str, session: str, more: dict[str, Any], opener: Opener
) -> dict[str, Any]:
    """Merge without rights. Return the core's answer, or its error."""
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
        return {"error": ["cannot merge the recording", why]}
    drop_privileges()
    limit_memory(size + MEMORY + MEMORY_OF_A_THREAD * (os.cpu_count() or 1), None)
    threads = {int(thread): pid for thread, pid in more.get("threads", {}).items()}
    bundles = [(event, field, list(map(tuple, of))) for event, field, of in more["bundles"]]
    options = cast("native.MergeOptions", more)
    options["maps"] = [(*row[:5], bytes.fromhex(row[5]), row[6]) for row in more["maps"]]
    options["threads"], options["bundles"] = threads, bundles
    options["window"] = tuple(more["window"]) if more.get("window") else None
    options["span"] = tuple(more["span"]) if more.get("span") else None
    options["opener"] = opener
    try:
        return dict(native.merge(inputs, output, session, **options))
    except native.CoreError as error:
        words = list(map(str, error.args))
        for number, path in zip([*inputs, output], paths):
            words = [word.replace(number, os.path.basename(path)) for word in words]
        return {"error": words}


def _by_number(path: str, flags: int) -> str:
    return f"/proc/self/fd/{os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)}"


class Opener:
    """Opens programs for this process once it has given up its rights, by children that keep them.

    One that waits for a file system for too long is left there. Then the next one goes on, and
    nothing else is opened on that file system. ``hung``: (pid, path) of those. ``only``: the only
    files that are opened; None: any.
    """

    def __init__(self, only: Sequence[str] | None = None) -> None:
        self._only = only
        self.hung: list[tuple[int, str]] = []
        self._avoid: list[str] = []
        self._mounts = [mount.path for mount in of_own_namespace(Files(Path("/")))]
        self._lock = threading.Lock()  # the core asks from several threads
        self._children: list[tuple[int, socket.socket]] = []
        for _ in range(OPENERS):
            self._children.append(self._child())

    def _child(self) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                keep_only(theirs.fileno())
                _serve(theirs)
            finally:
                os._exit(0)
        theirs.close()
        return pid, ours

    def __call__(self, path: str | os.PathLike[str]) -> int:
        """Return a descriptor for reading. OSError: it cannot be opened, or is no program."""
        query, name = os.fsencode(path), os.fsdecode(path)
        if not query or len(query) > LONGEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if self._only is not None and name not in self._only:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        with self._lock:
            if not self._children or any(is_on(name, place) for place in self._avoid):
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            pid, connected = self._children[0]
            connected.send(query)
            if not Patience(pid, OPENING).readable(connected.fileno()):
                del self._children[0]
                connected.close()
                self.hung.append((pid, name))
                self._avoid.append(self._file_system(name))
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            answer, descriptors, _, _ = socket.recv_fds(connected, 16, 1)
        if not descriptors:
            number = int(answer or errno.EPIPE)
            raise OSError(number, os.strerror(number))
        return descriptors[0]

    def _file_system(self, path: str) -> str:
        """Return a directory that may be the path's file system's: a mount point, or a process's
        view."""
        if view := re.match(r"/proc/\d+", path):
            return view[0]
        return max((mount for mount in self._mounts if is_on(path, mount)), key=len, default=path)

    def __enter__(self) -> Opener:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child[1].close()
        end_children([child[0] for child in (*self._children, *self.hung)])


def _serve(questions: socket.socket) -> None:
    """Open what is asked for, until nobody asks. For a child."""
    while query := questions.recv(LONGEST + 1):
        try:
            descriptor = _opened(os.fsdecode(query))
        except OSError as error:
            questions.send(str(error.errno or errno.EIO).encode())
            continue
        socket.send_fds(questions, [b"0"], [descriptor])
        os.close(descriptor)


def _opened(path: str) -> int:
    if generated := _GENERATED.fullmatch(path):
        return open_generated(int(generated[1]), generated[2])
    return open_program(path)


def open_program(path: str) -> int:
    """Open an ELF program or library. Raise OSError if it cannot be opened, or is none."""
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


def open_generated(pid: int, path: str) -> int:
    """Open the list of the code that a process generates: /tmp/perf-PID.map, or its jitdump.

    The file must be a regular one of the process's own user, reached below the root of the process
    without a link. A process that has ended had this process's root, and belonged to its user, or
    to sudo's caller. OSError: there is none, or it is another's.
    """
    files = Files(Path("/"))
    process = read_stat(files, pid)
    if process is None:
        root, owner = "/", _last(r"^(\d+)$", os.environ.get("SUDO_UID", ""), os.geteuid())
    else:
        status = files.read(f"/proc/{pid}/status", quiet=True) or ""
        root, owner = f"/proc/{pid}/root", _last(_USER, status, -1)
        if path.startswith("/tmp/perf-"):  # by the number that the process has for itself
            path = f"/tmp/perf-{_last(_INSIDE, status, pid)}.map"
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *folders, name = path.strip("/").split("/")
        for part in folders:
            inside = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inside
        descriptor = os.open(name, _LIST, dir_fd=folder)
    finally:
        os.close(folder)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != owner:
        os.close(descriptor)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
    return descriptor


_USER = r"^Uid:\s*\d+\s+(\d+)"  # the effective one
_INSIDE = r"^NSpid:.*?(\d+)$"
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def _last(pattern: str, status: str, default: int) -> int:
    found = re.search(pattern, status, re.MULTILINE)
    return int(found[1]) if found else default
