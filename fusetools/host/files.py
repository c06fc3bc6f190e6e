"""The one way to a host's files and commands, so that a stored tree can stand for a host."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

MAX_FILE = 64 << 20  # kallsyms of a large kernel: some 15 MB

# Not there, or gone while we looked: no reason to tell anyone.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.EINVAL)


class Files:
    """Files under ``root``, by their absolute names; commands only when ``root`` is "/".

    In a stored tree the answer of ``perf version --build-options`` is the file
    "commands/perf version --build-options", and its first line is the exit status.
    Nothing here raises OSError; what was refused is kept in ``unreadable``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live = root == Path("/")
        self.unreadable: dict[str, str] = {}

    def at(self, name: str) -> str:
        return name if self.live else str(self.root) + name

    def read(self, name: str, quiet: bool = False) -> str | None:
        """The text, None when it cannot be read. Bytes that are no UTF-8 become surrogates."""
        data = self.read_bytes(name, quiet)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def read_bytes(self, name: str, quiet: bool = False) -> bytes | None:
        """At most MAX_FILE of a file, None when it cannot be read."""
        try:
            with Path(self.at(name)).open("rb", buffering=0) as file:
                parts = []
                size = 0
                while size < MAX_FILE and (part := file.read(1 << 20)):
                    parts.append(part)
                    size += len(part)
        except OSError as error:
            if not quiet:
                self._refused(name, error)
            return None
        return b"".join(parts)

    def list(self, name: str) -> list[str]:
        try:
            return sorted(os.listdir(self.at(name)))
        except OSError as error:
            if not name.startswith("/proc/"):
                self._refused(name, error)
            return []

    def link(self, name: str) -> str:
        try:
            return os.readlink(self.at(name))
        except OSError:
            return ""

    def exists(self, name: str) -> bool:
        """For files of the kernel's only: on a hung file system this would hang."""
        return os.path.exists(self.at(name))

    def writable(self, name: str) -> bool:
        """Really opened for writing, and nothing written. Never with O_TRUNC: it clears events."""
        try:
            os.close(os.open(self.at(name), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        except OSError as error:
            self._refused(name, error)
            return False
        return True

    def _refused(self, name: str, error: OSError) -> None:
        if error.errno not in _ABSENT:
            self.unreadable[name] = error.strerror or str(error)

    def which(self, command: str) -> str | None:
        if self.live:
            return shutil.which(command)
        named = [name for name in self.list("/commands") if name.split(" ")[0] == command]
        return f"/usr/bin/{command}" if named else None

    def start(self, *argv: str) -> Answer:
        """Starts a command; its answer is waited for when it is asked for."""
        if not self.live:
            return Answer(None, self.read("/commands/" + " ".join(argv)))
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", "PAGER": "cat"},
                start_new_session=True,
            )
        except OSError as error:
            return Answer(None, f"127\n{error.strerror}")
        return Answer(process, None)


class Answer:
    """What a command said."""

    def __init__(self, process: subprocess.Popen[bytes] | None, stored: str | None) -> None:
        self._process = process
        self._stored = stored

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def get(self, seconds: float = 30.0) -> tuple[int, str]:
        """Exit status and all output; 124 when it took longer than ``seconds`` and was killed."""
        if self._process is None:
            status, _, text = (self._stored or "127\n").partition("\n")
            return int(status), text
        try:
            output, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            return 124, f"no answer within {seconds:g} s"
        return self._process.returncode, output.decode("utf-8", "replace")


def bounded(function: Callable[[], str], seconds: float) -> str | None:
    """``function()`` run in a child process; None when it takes longer or fails.

    For everything that may touch a FUSE file system: a daemon that does not answer leaves the
    caller of stat() in a sleep that not even SIGKILL ends.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            data = function().encode("utf-8", "surrogateescape")
            while data:
                data = data[os.write(writer, data) :]
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    parts: list[bytes] = []
    finished = False
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            if not select.select([reader], [], [], left)[0]:
                break
            part = os.read(reader, 1 << 16)
            if not part:
                finished = True
                break
            parts.append(part)
    finally:
        os.close(reader)
    if not finished:
        os.kill(child, signal.SIGKILL)
        for _ in range(10):  # and no longer: it may sleep until the daemon answers
            if os.waitpid(child, os.WNOHANG)[0]:
                break
            time.sleep(0.01)
        return None
    _, status = os.waitpid(child, 0)
    return b"".join(parts).decode("utf-8", "surrogateescape") if status == 0 else None


def answers(path: str, seconds: float = 2.0) -> bool:
    """Whether the file system of ``path`` answers; also where there is no such path."""

    def look() -> str:
        with contextlib.suppress(OSError, ValueError):
            os.stat(path)
            os.statvfs(path)  # which no cache answers
        return ""

    return bounded(look, seconds) is not None
