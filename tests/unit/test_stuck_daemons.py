"""Which process answers a mount."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from fusetools.now import machine
from fusetools.now.moment import Connection, Process

MOUNT = Connection(40, "/mnt/a", "fuse.sshfs", "host:")
DAEMON = Process(100, 1, "sshfs", "S", uid=0, user="root", threads=(100, 101, 102))


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
    """Descriptors of others are shown to root alone; old kernels do not show whose they are; and
    one that could not be looked at in time may have them."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    other = replace(DAEMON, fuse=fuse)
    found = machine._with_daemon(MOUNT, {100: other}, silent)
    assert (found.daemon, found.hidden) == (None, hidden)
