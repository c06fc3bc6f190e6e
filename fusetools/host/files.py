"""All access to a host's files and commands, so that a stored tree can replace a host."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import shlex
import signal
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from fusetools.errors import RECORD, Error
from fusetools.figures import binary
from fusetools.host import left
from fusetools.host.messages import Incoming, send
from fusetools.host.paths import may_hang

if TYPE_CHECKING:
    import subprocess

# Commands that only read a recording import this module. Import slow modules where they are used.

MAX_ANSWER = 256 << 20
BUSY = 4  # maximum factor of a timeout, including the child's waits for a CPU
MAX_FILE = 64 << 20  # size of a large kernel's kallsyms: some 15 MB

TRUSTED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The file is missing or has just disappeared: not worth reporting.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.EINVAL)


class Files:
    """The files under ``root``, by their absolute names.

    Commands run only when ``root`` is "/". In a stored tree the file "commands/perf version
    --build-options" holds the output of ``perf version --build-options``; its first line is the
    exit status. No method raises OSError; ``unreadable`` lists the files that could not be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live = root == Path("/")
        self.unreadable: dict[str, str] = {}

    def at(self, name: str) -> str:
        return name if self.live else str(self.root) + name

    def read(self, name: str, quiet: bool = False) -> str | None:
        """Return the text of a file, None if it cannot be read.

        Bytes that are not UTF-8 become surrogates.
        """
        data = self.read_bytes(name, quiet)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def read_bytes(self, name: str, quiet: bool = False) -> bytes | None:
        """Return at most MAX_FILE bytes of a file, None if it cannot be read."""
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
        """Use only for the kernel's files: on a hung file system this would hang."""
        return os.path.exists(self.at(name))

    def writable(self, name: str) -> bool:
        """Return whether the file opens for writing.

        Write nothing, and never use O_TRUNC: it clears events.
        """
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
            import shutil

            return shutil.which(command, path=command_path())
        named = [name for name in self.list("/commands") if name.split(" ")[0] == command]
        return f"/usr/bin/{command}" if named else None

    def start(self, *argv: str) -> Answer:
        """Start a command. Answer.get() waits for it."""
        if not self.live:
            return Answer(None, self.read("/commands/" + " ".join(argv)))
        import subprocess

        try:
            path = self.which(argv[0])
            if path is None:
                return Answer(None, f"127\n{argv[0]}: not found")
            process = subprocess.Popen(
                (path, *argv[1:]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=tool_environment(),
                start_new_session=True,
            )
        except OSError as error:
            return Answer(None, f"127\n{error.strerror}")
        return Answer(process, None)


def command_path() -> str:
    """Return the directories to search for commands: root runs nothing that another user could have
    put there."""
    path = os.environ.get("PATH") or os.defpath
    if os.geteuid() != 0:
        return path
    return _of_root(path) or TRUSTED


@functools.lru_cache(maxsize=4)
def _of_root(path: str) -> str:
    hangs = may_hang()  # and only the daemon decides who owns a file there

    def look() -> str:
        return ":".join(each for each in path.split(":") if not hangs(each) and _is_of_root(each))

    return bounded(look, 5.0) or ""


def command_problem(name: str) -> int:
    """Return the errno with which a user's command cannot run.

    0: it can run, or only the daemon of a mount could tell; the daemon is not asked.
    """
    hangs = may_hang()
    whole = "/" in name
    places = [name] if whole else os.get_exec_path()
    asked = [place for place in places if not hangs(place)]

    def look() -> str:
        import shutil

        if whole and not asked:
            return "0"
        if shutil.which(name, path=":".join(asked)) or len(asked) < len(places):
            return "0"
        return str(errno.EACCES if whole and os.path.exists(name) else errno.ENOENT)

    return int(bounded(look, 2.0) or 0)


def _is_of_root(path: str) -> bool:
    """Return whether only root can change the contents of a directory."""
    if not path.startswith("/"):
        return False
    real = Path(path).resolve()
    try:
        for each in (Path(path).absolute(), *Path(path).absolute().parents, real, *real.parents):
            status = each.stat()
            writable = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
            if status.st_uid != 0 or writable:
                return False
    except OSError:
        return False
    return True


def tool_environment() -> dict[str, str]:
    """Return the environment for perf and other tools: as root, without the variables of sudo's
    caller."""
    ours = {"LC_ALL": "C", "PAGER": "cat", "PERF_CONFIG": "/dev/null", "PATH": command_path()}
    if os.geteuid() != 0:
        return {**os.environ, **ours}
    return {**ours, "HOME": "/", "TERM": "dumb"}


class Answer:
    """The exit status and output of a command."""

    def __init__(self, process: subprocess.Popen[bytes] | None, stored: str | None) -> None:
        self._process = process
        self._stored = stored

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def get(self, seconds: float = 30.0) -> tuple[int, str]:
        """Return the exit status and all output; 124 if the command was killed at its timeout."""
        if self._process is None or self._stored is not None:
            status, _, text = (self._stored or "127\n").partition("\n")
            return int(status), text
        import subprocess

        try:
            output, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            return 124, f"no answer within {seconds:g} s"
        text = output.decode("utf-8", "replace")
        self._stored = f"{self._process.returncode}\n{text}"
        return self._process.returncode, text


class Patience:
    """A child's timeout: ``seconds`` from now on, extended by the child's waits for a CPU.

    A busy host is not a hang.
    """

    def __init__(self, child: int, seconds: float) -> None:
        self._child, self._seconds = child, seconds
        self._begin, self._waited = time.monotonic(), waited_for_cpu(child)

    def readable(self, descriptor: int) -> bool:
        """Wait for the descriptor. Return whether it became readable in time."""
        end, last = self._begin + self._seconds, self._begin + BUSY * self._seconds
        while True:
            now = time.monotonic()
            if now > last or not select.select([descriptor], [], [], max(end - now, 0))[0]:
                waited = waited_for_cpu(self._child) - self._waited
                end = min(self._begin + self._seconds + waited, last)
                if end <= time.monotonic():
                    return False
            else:
                return True


def waited_for_cpu(pid: int) -> float:
    """Return the seconds that a process has waited for a CPU since it began; 0 if unknown.

    The figure is the kernel's (Documentation/scheduler/sched-stats.rst).
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Meanwhile:
    """A call of ``function()`` in a child process while this process continues: see bounded()."""

    def __init__(
        self, function: Callable[[], str], memory: int | None = None, keep: Collection[int] = ()
    ) -> None:
        if memory is not None:
            from fusetools.host.rights import limit_memory
        self._reader, writer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                keep_only(writer, *keep)
                if memory is not None:
                    limit_memory(memory)
                send(writer, function().encode("utf-8", "surrogateescape"))
            finally:
                os._exit(1)
        os.close(writer)

    def get(self, seconds: float, most: int = MAX_ANSWER) -> str | None:
        """Return the result, once. Return None if the child exceeds its timeout from now on, fails,
        or returns too much.

        Time that the child waits for a CPU does not count: a busy host is not a hang.
        """
        answer = Incoming(most)
        patience = Patience(self._child, seconds)
        try:
            while not answer.complete and patience.readable(self._reader):
                if not answer.take(self._reader):
                    break
        except ValueError:  # too large
            return None
        finally:
            os.close(self._reader)
            end_children([self._child])
        return answer.data.decode("utf-8", "surrogateescape") if answer.complete else None


def keep_only(*descriptors: int) -> None:
    """Close all other descriptors in a child, and open /dev/null as the standard ones.

    The child may stay behind in a sleep that not even SIGKILL ends. Then it must not hold a lock,
    nor a pipe whose reader waits for its end.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2}.difference(descriptors):
        os.dup2(null, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in descriptors:
            with contextlib.suppress(OSError):  # the descriptor of the list itself
                os.close(number)


def close_own(*kept: int) -> None:
    """Close the descriptors that the program would not inherit, except ``kept``, before a child
    runs it.

    The program may lie on a hung file system, so that loading it never ends.
    """
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if number not in kept and not os.get_inheritable(number):
                os.close(number)


_given_up: set[int] = set()


def end_children(pids: Collection[int]) -> None:
    """Kill children of this process and wait briefly for their exit.

    A child may sleep until a daemon answers. The next call waits for it again.
    """
    for pid in pids:
        # The child has ended, or has rights that this process has dropped
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    _given_up.update(pids)
    for _ in range(20):
        _given_up.difference_update([pid for pid in _given_up if _ended(pid)])
        if _given_up.isdisjoint(pids):
            return
        _pause(next(iter(_given_up.intersection(pids))))
    left.note(_given_up)


def _pause(child: int) -> None:
    """Wait for a ms, or until the child has ended (pidfd_open(2), Linux 5.3)."""
    try:
        descriptor = os.pidfd_open(child)
    except (AttributeError, OSError):  # Python built for an older kernel; such a kernel
        time.sleep(0.001)
        return
    select.select([descriptor], [], [], 0.001)
    os.close(descriptor)


def left_behind(seconds: float = 0.2) -> list[int]:
    """Wait briefly for the killed children. Return those that still have not ended."""
    end = time.monotonic() + seconds
    while _given_up and time.monotonic() < end:
        end_children(list(_given_up))
    return sorted(pid for pid in _given_up if not _ends(pid))


def _ends(killed: int) -> bool:
    """Return whether a killed process ends as soon as it gets a CPU."""
    try:
        state = Path(f"/proc/{killed}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in "RZX"


def _ended(child: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(child, os.WNOHANG)[0] != 0
    return True


def bounded(
    function: Callable[[], str],
    seconds: float,
    most: int = MAX_ANSWER,
    memory: int | None = None,
    keep: Collection[int] = (),
) -> str | None:
    """Return ``function()``, run in a child process.

    Return None if it exceeds ``seconds``, fails, or returns more than ``most`` bytes. ``memory``:
    limit in bytes; ``keep``: descriptors that the function uses.

    Use it for everything that may touch a FUSE file system: a daemon that does not answer leaves
    the caller of stat() in a sleep that not even SIGKILL ends.
    """
    return Meanwhile(function, memory, keep).get(seconds, most)


# Beginnings of the names of this process's open files, including its standard output.
OPENED = ("/dev/std", "/dev/fd/", "/proc/self/fd/")


def absolute(path: str) -> str:
    """Return a path in the form of a mount point. No file is looked up: that may hang."""
    path = os.path.abspath(path)
    return path[1:] if path.startswith("//") else path  # POSIX lets this mean another place


def by_descriptor(descriptor: int) -> Path:
    """Return a name of an open file or directory that no other process can redirect."""
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def open_regular(path: str) -> int:
    """Open a file that anybody may have created.

    Raise OSError if it is no regular file or cannot be opened.
    """
    # Opening a fifo would wait for its writer; a terminal would become this process's own.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", path)
    return descriptor


def read_input(path: str | Path, most: int) -> bytes:
    """Open a file that a user named.

    Raise OSError if it is unreadable, too large, or does not answer.
    """
    if not answers(str(path)):
        raise OSError(errno.EIO, "its file system does not answer", str(path))
    with os.fdopen(open_regular(str(path)), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {binary(most)}", str(path))
    return data


def answers(path: str, seconds: float = 2.0) -> bool:
    """Return whether the file system of ``path`` answers.

    Also return True if there is no such path.
    """

    def look() -> str:
        with contextlib.suppress(OSError, ValueError):
            os.stat(path)
            os.statvfs(path)  # not answered from a cache
        return ""

    return bounded(look, seconds) is not None


def check_answers(path: Path) -> None:
    """Raise Error if the file system of ``path`` does not answer."""
    if not answers(str(path)):
        raise Error(f"cannot read {path}", "its file system does not answer")


def check_readable(path: Path, fix: str = RECORD) -> None:
    """Raise Error, with this fix, unless ``path`` is a file that can be read."""
    what = f"cannot read {path}"
    check_answers(path)
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            inside = path / "perf.data"
            read = f"fusetools hist -i {shlex.quote(str(inside))}" if inside.exists() else fix
            raise Error(what, "it is a directory", read)
        if not stat.S_ISREG(kind):
            raise Error(what, "it is not a file", fix)
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        raise Error(what, "there is no such file", fix) from error
    except PermissionError as error:
        fix = f'sudo chown "$USER" {shlex.quote(str(path))}'
        raise Error(what, "permission denied", fix) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise Error(what, getattr(error, "strerror", None) or str(error), RECORD) from error


MOST_STREAM = 4 << 30  # limit in bytes for a recording read from the standard input


@functools.lru_cache(maxsize=1)
def standard_input() -> str:
    """Copy the standard input to a temporary file without a name.

    Return a path that opens the file.
    """
    import shutil
    import sys
    import tempfile

    file = tempfile.TemporaryFile()  # noqa: SIM115
    most = min(MOST_STREAM, shutil.disk_usage(tempfile.gettempdir()).free // 2)
    left = most
    while part := sys.stdin.buffer.read(1 << 20):
        left -= len(part)
        if left < 0:
            why = f"it is longer than {most:,} bytes"
            raise Error("cannot read the standard input", why, "fusetools COMMAND -i FILE")
        file.write(part)
    file.flush()
    return f"/proc/self/fd/{os.dup(file.fileno())}"
