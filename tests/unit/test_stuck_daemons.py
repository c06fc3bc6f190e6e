"""The process that answers a mount."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from fusetools.host.mounts import BEYOND
from fusetools.stuck import machine
from fusetools.stuck.moment import Connection, Descriptor, Process, Task

MOUNT = Connection(40, "/mnt/a", "fuse.sshfs", "host:")
DAEMON = Process(100, 1, "sshfs", "S", uid=0, user="root", threads=(100, 101, 102))


@pytest.fixture(autouse=True)
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not show the connection of its descriptor of FUSE's device."""
    monkeypatch.setattr(machine, "shows_connections", lambda files: False)


def answered(processes: dict[int, Process], paths: list[str], silent: int = 0) -> Connection:
    """Return the mount with its daemon, where these are the paths of all mounts."""
    mounts = [replace(MOUNT, path=path) for path in paths]
    return machine._with_daemon(MOUNT, processes, machine._named(mounts, processes), silent)


@pytest.mark.parametrize(
    ("uid", "fuse", "silent", "hidden"),
    [(0, (), 0, False), (0, (None,), 0, True), (1000, (), 0, True), (0, (), 1, True)],
)
def test_a_daemon_that_is_not_seen_is_not_gone(
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    fuse: tuple[int | None, ...],
    silent: int,
    hidden: bool,
) -> None:
    """Only root sees others' descriptors; old kernels do not show their connections; and a process
    that could not be examined in time may have them."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    other = replace(DAEMON, fuse=fuse)
    found = answered({100: other}, ["/mnt/a"], silent)
    assert (found.daemon, found.hidden) == (None, hidden)


def test_virtiofs_has_no_daemon_here() -> None:
    """Also a process that an old kernel's command line would name."""
    other = named(100, "virtiofs /mnt/a")
    mount = replace(MOUNT, fstype="virtiofs")
    found = machine._with_daemon(mount, {100: other}, {100: {mount.path}}, 0)
    assert (found.daemon, found.hidden, found.why) == (None, False, BEYOND)


def named(pid: int, command: str, threads: int = 1) -> Process:
    """A process with /dev/fuse open, on a kernel that does not show the connection."""
    numbers = tuple(range(pid, pid + threads))
    return Process(
        pid, 1, "x", "S", fuse=(None,), threads=numbers, arguments=tuple(command.split())
    )


@pytest.mark.parametrize(
    ("commands", "daemon"),
    [
        (("sshfs host: /mnt/a", "bindfs /mnt/a /mnt/b"), 100),  # which has more threads
        (("bindfs -f /mnt/b /mnt/a", "sshfs host: /mnt/b"), 100),
        (("rclone mount x: /mnt/a --cache-dir /mnt/b", "sshfs host: /mnt/b"), 100),
        (("sshfs -f /mnt/a", "bindfs /mnt/a /mnt/b"), 100),
        (("sshfs host: a", "bindfs /mnt/a /mnt/b"), 100),
        # It has exited, and the other one only names the mount.
        (("other", "bindfs /mnt/a /mnt/b"), None),
    ],
)
def test_a_command_line_that_names_several_mounts(
    monkeypatch: pytest.MonkeyPatch, commands: tuple[str, str], daemon: int | None
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    processes = {100: named(100, commands[0]), 200: named(200, commands[1], 10)}
    found = answered(processes, ["/mnt/a", "/mnt/b"])
    assert (found.daemon, found.hidden) == (daemon, daemon is None)


def test_daemons_of_two_mounts_on_one_path_are_unknown() -> None:
    processes = {100: named(100, "sshfs a: /mnt/a"), 200: named(200, "sshfs b: /mnt/a", 10)}
    found = answered(processes, ["/mnt/a", "/mnt/a"])
    assert (found.daemon, found.hidden) == (None, True)


def test_stuck_ignores_a_device_without_a_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can open the device and name another's mount: it does not count if the kernel shows
    connections."""
    poser = named(100, "sshfs host: /mnt/a")
    other = replace(named(200, "x /mnt/b"), fuse=(41,))
    assert answered({100: poser}, ["/mnt/a"]).daemon == 100
    assert answered({100: poser, 200: other}, ["/mnt/a"]).daemon is None
    monkeypatch.setattr(machine, "shows_connections", lambda files: True)
    found = answered({100: poser}, ["/mnt/a"])
    assert (found.daemon, found.hidden) == (None, os.geteuid() != 0)


@pytest.mark.parametrize(
    ("mounter", "uid", "serves"),
    [(1000, 1000, True), (1000, 0, True), (1000, 2000, False), (0, 2000, True), (None, 2000, True)],
)
def test_only_the_user_who_mounted_can_serve(mounter: int | None, uid: int, serves: bool) -> None:
    """On an old kernel; but a daemon that root started may have become another user."""
    process = replace(named(100, "sshfs host: /mnt/a"), uid=uid)
    mount = replace(MOUNT, user=mounter)
    found = machine._with_daemon(mount, {100: process}, machine._named([mount], {100: process}), 0)
    assert found.daemon == (100 if serves else None)


def of_process(pid: int, call: str = "", state: str = "S", **more: object) -> Task:
    return Task(pid, pid, "x", state, call=call, **more)  # type: ignore[arg-type]


DEVICE = (Descriptor(3, "/dev/fuse"),)
READS = ("fuse_dev_do_read", "fuse_dev_read")


@pytest.mark.parametrize(
    ("first", "second", "servers"),
    [
        # A supervisor and its child, which reads, polls, or was stopped meanwhile.
        (of_process(10, "pause"), of_process(20, "read", stack=READS), (20,)),
        (of_process(10, "epoll_wait"), of_process(20, "poll", descriptors=DEVICE), (20,)),
        (of_process(10, "wait4"), of_process(20, "read", "T", descriptors=DEVICE), (20,)),
        (of_process(10, "pause"), of_process(20, "nanosleep"), (20,)),
        (of_process(10, "epoll_wait"), of_process(20, state="T"), (20,)),
        (of_process(10, "poll"), of_process(20, "futex", user=("fuse_lib_open",)), (20,)),
        # The first one serves.
        (of_process(10, "read", stack=READS), of_process(20, "read"), (10,)),
        (of_process(10, "nanosleep"), of_process(20, "pause"), (10,)),
        # Both do.
        (of_process(10, "read", stack=READS), of_process(20, "read", stack=READS), (10, 20)),
    ],
)
def test_the_server_is_the_reader_of_the_device(
    first: Task, second: Task, servers: tuple[int, ...]
) -> None:
    mount = replace(MOUNT, daemon=10, holders=(10, 20))
    processes = {
        pid: Process(pid, 1, "x", task.state, threads=(pid,))
        for pid, task in ((10, first), (20, second))
    }
    found = machine._with_servers(mount, processes, [first, second])
    assert found.servers == servers and found.daemon in servers
