"""The workload: forked, held before its first instruction, run as the user who invoked sudo."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import grp
import os
import pwd
import re
import select
import signal
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import struct_siginfo

from fusetools.errors import Error
from fusetools.host import inherited
from fusetools.host.files import close_own
from fusetools.record.signals import SI_KERNEL
from fusetools.results.record import Usage

MOST = (1 << 32) - 1  # above it is no user: (uid_t) -1
EXEC = 5.0  # seconds that a program may take to be loaded


@dataclass(frozen=True)
class User:
    """The user whom the workload runs as, and who gets perf.data."""

    uid: int
    gid: int
    name: str
    home: str
    shell: str
    groups: tuple[int, ...]


def caller(environment: Mapping[str, str]) -> User | None:
    """Return who called sudo; None if nobody did, or root. Raise Error if that makes no sense."""
    if "SUDO_UID" not in environment:
        return None
    numbers = [environment.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if not all(re.fullmatch("[0-9]{1,10}", text) and int(text) < MOST for text in numbers):
        raise Error(
            "cannot run the workload as the user who invoked sudo",
            "SUDO_UID and SUDO_GID are no user and group",
            "--as-root",
        )
    uid, gid = map(int, numbers)
    if uid == 0:
        return None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a user of no passwd file, as in containers
        return User(uid, gid, environment.get("SUDO_USER", str(uid)), "/", "/bin/sh", (gid,))
    try:
        groups = tuple(os.getgrouplist(entry.pw_name, gid))
    except OSError:
        groups = tuple(g.gr_gid for g in grp.getgrall() if entry.pw_name in g.gr_mem)
    return User(uid, gid, entry.pw_name, entry.pw_dir, entry.pw_shell, groups)


def environment_of(user: User | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without sudo's traces: the user's own HOME, USER and LOGNAME."""
    result = dict(environment)
    if user:
        for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"):
            result.pop(name, None)
        result.update(HOME=user.home, USER=user.name, LOGNAME=user.name, SHELL=user.shell)
    return result


class Workload:
    """A command in a child process that waits to be released.

    ``log``: the open file that its output goes to, emptied before, instead of where ours goes. It
    then belongs to a measurement, and ends with us even if we are killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        user: User | None,
        environment: Mapping[str, str],
        log: int | None = None,
    ) -> None:
        self.command = tuple(command)
        self.status: int | None = None  # as from waitpid
        self.usage: Usage | None = None  # once it has ended
        parent = os.getpid()
        released, self._release = os.pipe()
        self._failed, fail = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # Its program may be loaded for ever: then it must not hold our lock.
                close_own(
                    released, fail, *inherited.descriptors(), *(() if log is None else (log,))
                )
                _run(
                    self.command,
                    user,
                    environment_of(user, environment),
                    released,
                    fail,
                    log,
                    parent,
                )
            finally:
                os._exit(127)
        os.close(released)
        os.close(fail)

    def start(self) -> None:
        """Let it run. Raise Error if there is no such command, or it may not be run."""
        os.write(self._release, b"x")
        os.close(self._release)
        self._release = -1
        # Empty: exec closed it. A program on a file system that hangs is waited for later.
        if select.select([self._failed], [], [], EXEC)[0]:
            error = os.read(self._failed, 8)
            os.close(self._failed)
            self._failed = -1
            if error:
                self.wait()
                raise cannot_run(self.command[0], struct.unpack("i", error[:4])[0])

    @property
    def started(self) -> bool:
        return self._release < 0

    def poll(self) -> bool:
        """Return whether it has ended."""
        self._reap(os.WNOHANG)
        return self.status is not None

    def wait(self) -> None:
        self._reap(0)

    def _reap(self, option: int) -> None:
        if self.status is not None:
            return
        # left as a zombie for a moment, which still has its figures in /proc
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | option) is None:
            return
        read, written = _characters(self.pid)
        _, self.status, used = os.wait4(self.pid, 0)
        switches = used.ru_nvcsw + used.ru_nivcsw
        self.usage = Usage(used.ru_utime, used.ru_stime, switches, read, written)

    def signal(self, number: int) -> None:
        if self.status is None:
            os.kill(self.pid, number)

    def pass_on(self, came: struct_siginfo) -> None:
        """Send it a signal that came to us, unless the terminal has sent it there already."""
        if came.si_code != SI_KERNEL:
            self.signal(came.si_signo)

    @property
    def exit_status(self) -> int | None:
        """The exit status as a shell gives it: 128 + N for signal N."""
        if self.status is None:
            return None
        if os.WIFSIGNALED(self.status):
            return 128 + os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status)

    def abandon(self) -> None:
        """End it if it never ran, and close what is open."""
        for descriptor in (self._release, self._failed):
            if descriptor >= 0:
                os.close(descriptor)  # a child that waits reads the end of the pipe, and leaves
        waiting = self._release >= 0
        self._release = self._failed = -1
        if waiting:
            self.wait()


def _run(
    command: Sequence[str],
    user: User | None,
    environment: Mapping[str, str],
    released: int,
    fail: int,
    log: int | None,
    parent: int,
) -> None:
    """Run the command, in the child. The pipes close at exec."""
    try:
        for number in signal.valid_signals():
            ours = signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None)
            # Signals that were ignored before, as by nohup, stay so.
            if ours or number in inherited.PYTHONS:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if log is not None:
            if stat.S_ISREG(os.fstat(log).st_mode):
                os.ftruncate(log, 0)
                os.lseek(log, 0, os.SEEK_SET)
            os.dup2(log, 1)
            os.dup2(log, 2)
        if not os.read(released, 1):
            os._exit(127)
        words, variables = list(command), dict(environment)
        inherited.give_back()
        if user:
            os.setgroups(user.groups)
            os.setgid(user.gid)
            os.setuid(user.uid)
        if log is not None:  # after setuid, which forgets it
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(127)
        inherited.limit_processes()
        os.execvpe(words[0], words, variables)
    except MemoryError:  # by the caller's limit
        os.write(fail, struct.pack("i", errno.ENOMEM))
    except OSError as error:
        os.write(fail, struct.pack("i", error.errno or errno.EIO))
    os._exit(127)


def _characters(pid: int) -> tuple[int | None, int | None]:
    """rchar and wchar of /proc/PID/io: bytes read and written, also by its children that ended."""
    counters: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, value = line.partition(":")
            counters[name] = int(value)
    return counters.get("rchar"), counters.get("wchar")


def cannot_run(name: str, number: int) -> Error:
    if number == errno.ENOENT:
        return Error(f"there is no command {name}", "", "check its name, or give its whole path")
    return Error(f"cannot run {name}", os.strerror(number))
