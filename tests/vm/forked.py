"""The server in a guest that runs `fusetools` in forks of itself: in an emulator its start and its
imports take seconds of CPU time.

    python forked.py SOCKET

Its client forked.c has the command's name. A process in another namespace or root than this one's,
of another user, or whose environment steers Python, runs the command itself. A fork first runs the
Python code in the variable FORKED of the command's environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import os
import pkgutil
import resource
import select
import signal
import socket
import struct
import sys
from pathlib import Path

HEAD = struct.Struct("=QQQQ")  # bytes of words and of settings, umask, ignored signals
ANSWER = struct.Struct("=i")  # pid, later its status
NONE = -1
PEER = struct.Struct("=iII")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
INHERITED = ("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp", "Cpus_allowed")
LIMITS = range(16)  # RLIM_NLIMITS
PR_SET_NAME = 15


class Call:
    """A command as its client sends it."""

    def __init__(self, client: socket.socket) -> None:
        data, self.descriptors, _, _ = socket.recv_fds(client, HEAD.size, 4)
        words, settings, self.mask, self.ignored = HEAD.unpack(data)
        text = b""
        while len(text) < words + settings:
            more = client.recv(1 << 16)
            if not more:
                raise EOFError
            text += more
        self.arguments = [os.fsdecode(word) for word in text[:words].split(b"\0")[:-1]]
        pairs = (one.partition(b"=") for one in text[words:].split(b"\0")[:-1])
        self.environment = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        self.pid = PEER.unpack(peer)[0]

    def fits(self) -> bool:
        """Return whether a fork of this process is what the client would be."""
        if any(name.startswith(("PYTHON", "LC_", "LD_")) for name in self.environment):
            return False
        if self.environment.get("LANG") != os.environ.get("LANG"):
            return False
        return state(self.pid) == state(os.getpid())

    def become(self) -> None:
        """Make this process, a fork, what the client would be."""
        group = os.getpgid(self.pid)
        if group != os.getpgid(0):
            os.setpgid(0, group)
        for number, descriptor in enumerate(self.descriptors[:3]):
            os.dup2(descriptor, number)
        os.fchdir(self.descriptors[3])
        for descriptor in self.descriptors:
            os.close(descriptor)
        os.umask(self.mask)
        for number in range(1, 32):
            if self.ignored >> number & 1:
                signal.signal(number, signal.SIG_IGN)
        os.environ.clear()
        os.environ.update(self.environment)
        name = os.path.basename(self.arguments[0])
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
        sys.argv = self.arguments
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), "utf-8")
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(
                io.BufferedWriter(io.FileIO(number, "wb", closefd=False)),
                "utf-8",
                errors,
                line_buffering=number == 2 or os.isatty(number),
            )
            for number, errors in ((1, "strict"), (2, "backslashreplace"))
        )


def state(pid: int) -> list[object]:
    """Return what a process has from its parents, as far as a fork of another may differ."""
    at = Path(f"/proc/{pid}")
    found: list[object] = [(at / "cgroup").read_text()]
    found += [n for n in (at / "status").read_text().splitlines() if n.startswith(INHERITED)]
    found += [os.readlink(f"{at}/ns/{name}") for name in NAMESPACES]
    found += [resource.prlimit(pid, limit) for limit in LIMITS]
    return [
        *found,
        os.readlink(f"{at}/root"),
        os.getsid(pid),
        os.sched_getscheduler(pid),
        os.getpriority(os.PRIO_PROCESS, pid),
    ]


def serve(listening: socket.socket) -> None:
    """Return in each fork that is to run the command."""
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    commands: dict[int, tuple[int, socket.socket]] = {}  # pid and client, by the pid's descriptor
    while True:
        for number, _ in poll.poll():
            if number == listening.fileno():
                client, _ = listening.accept()
                try:
                    call = Call(client)
                    fits = call.fits()
                except (OSError, EOFError, struct.error):  # it was killed
                    client.close()
                    continue
                pid = os.fork() if fits else NONE
                if pid == 0:
                    for ended, (_, other) in commands.items():
                        os.close(ended)
                        other.close()
                    client.close()
                    listening.close()
                    call.become()
                    return
                for descriptor in call.descriptors:
                    os.close(descriptor)
                with contextlib.suppress(OSError):
                    client.sendall(ANSWER.pack(pid))
                if pid != NONE:
                    ended = os.pidfd_open(pid)
                    commands[ended] = pid, client
                    poll.register(ended, select.POLLIN)
                    poll.register(client, select.POLLIN)
            elif number in commands:
                pid, client = commands.pop(number)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):
                    client.sendall(ANSWER.pack(status))
                with contextlib.suppress(KeyError):
                    poll.unregister(client)
                poll.unregister(number)
                os.close(number)
                client.close()
            else:
                for pid, client in commands.values():
                    if client.fileno() == number:  # it was killed
                        os.kill(pid, signal.SIGKILL)
                        poll.unregister(client)


def main() -> None:
    import fusetools.cli

    for found in pkgutil.iter_modules(fusetools.cli.__path__):
        importlib.import_module(f"fusetools.cli.{found.name}")
    # Modules that its commands import only once they run
    for name in (
        *("answers.count", "configs.fs", "host.service", "record.before", "record.session"),
        *("record.waiting", "render.text.count", "stuck.children"),
        *("stuck.machine", "stuck.verdict", "stuck.waited"),
    ):
        importlib.import_module(f"fusetools.{name}")
    from fusetools.record import costs
    from fusetools.stuck import children, machine

    # In an emulated machine, examining a process takes longer than stuck waits.
    machine.PATIENCE = 30.0
    children.AWAKE = 2.0
    # An emulator's figures mean nothing: measure the overhead of a recording briefly.
    costs.ROUNDS = 3
    defaults = machine.read.__defaults__
    assert defaults
    machine.read.__defaults__ = (100.0, *defaults[1:])
    # Started in a script's background, this process ignores the first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    gc.collect()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(sys.argv[1])
    listening.listen(64)
    serve(listening)
    exec(os.environ.pop("FORKED", ""), {})

    from fusetools.__main__ import run

    run()


if __name__ == "__main__":
    main()
