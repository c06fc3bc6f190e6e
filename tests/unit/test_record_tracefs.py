"""tracefs's figures about probes: which are set, and the returns that they missed."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fusetools.plan.events import Probe
from fusetools.record import tracefs
from fusetools.record.tracefs import Tracefs

# /sys/kernel/debug/kprobes/list of Linux 6.1
LIST = """\
ffffffffc09d1a10  k  fuse_lookup+0x0  fuse [FTRACE]
ffffffffc09d2a50  r  fuse_getattr+0x0  fuse [FTRACE]
ffffffffc09d3b60  k  fuse_open+0x0  fuse [DISABLED][FTRACE]
ffffffffc09d4c70  k  fuse_flush+0x0 [GONE]
ffffffffc09d5d80  k  fuse_send_readpages.isra.0+0x5  fuse
"""


def probe(place: str) -> Probe:
    return Probe(f"fuse_kernel:{place[:9]}", "p", place, "kernel", "", "", "entry")


def test_probes_that_are_not_in_the_code(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LIST)
    there = ("fuse_lookup", "fuse_getattr", "fuse_send_readpages.isra.0")
    gone = ("fuse_flush", "fuse_open", "other:fuse_lookup")
    probes = [probe(place) for place in (*there, *gone, "/lib/libx.so:0x123")]
    fs = Tracefs(str(tmp_path))
    assert fs.unplaced(probes, str(tmp_path / "list")) == list(gone)
    assert fs.unplaced(probes, str(tmp_path / "nothing")) == []


def test_returns_that_were_missed(tmp_path: Path) -> None:
    """As on Linux 5.10: 12,281 entries and 2,039 returns, and 5 faults in a handler."""
    fs = Tracefs(str(tmp_path))
    assert fs.missed_returns() == {}
    (tmp_path / "kprobe_profile").write_text(
        "  queue_request_and_unlock                             14057           11091\n"
        "  request_wait_answer                                  12281               5\n"
        "  request_wait_answer__return                           2039           10247\n"
    )
    assert fs.missed_returns() == {"request_wait_answer__return": 12281 - 2039}


def test_hits_of_probes_that_share_an_event(tmp_path: Path) -> None:
    """uprobe_profile names the event in each probe's line, in the order of their creation."""

    def uprobe(name: str, bundle: str = "") -> Probe:
        place = "/lib/libx.so:0x12"
        one = Probe(f"fuse_daemon:{name}", "p", place, "daemon", name, "", "entry")
        return replace(one, bundle=bundle and f"fuse_daemon:{bundle}")

    probes = [uprobe("x_open", "bundle_1"), uprobe("x_alone"), uprobe("x_read", "bundle_1")]
    (tmp_path / "uprobe_profile").write_text(
        "  /lib/libx.so                             bundle_1                     31\n"
        "  /lib/a lib/libx.so                       x_alone                       7\n"
        "  /lib/libx.so                             bundle_1                     11\n"
    )
    fs = Tracefs(str(tmp_path))
    hits = {"fuse_daemon:x_open": 31, "fuse_daemon:x_alone": 7, "fuse_daemon:x_read": 11}
    assert fs.hits(probes) == hits
    # Another user's event has the same name: the owner of each line is unknown.
    assert fs.hits([probes[0], probes[1]]) == {"fuse_daemon:x_alone": 7}
    assert Tracefs(str(tmp_path / "nothing")).hits(probes) == {}


UPROBES = """\
p:fuse_daemon/bundle_1 /lib/libx.so:0x0000000000000012 number=\\1:u16
p:fuse_daemon/alone /lib/libx.so:0x0000000000000020
p:fuse_daemon/bundle_1 /lib/libx.so:0x0000000000000014 number=\\2:u16
"""


def test_probes_of_one_event_stay_while_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would free them; it refuses to remove an event of a single probe. Another
    recording, of other events, does not prevent the removal."""
    (tmp_path / "uprobe_events").write_text(UPROBES)
    other = tmp_path / "instances" / "another"
    for place in (tmp_path, other):
        (place / "events/fuse_daemon/bundle_1").mkdir(parents=True)
        (place / "events/fuse_daemon/bundle_1/enable").write_text("0\n")
    users: list[int] = []
    monkeypatch.setattr(tracefs, "recorders", lambda _files, _since: users)
    refused: list[str] = []

    def once(path: Path, text: str) -> None:
        if path.name in refused:
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        path.write_text(text)

    monkeypatch.setattr(tracefs, "_write_once", once)
    written: list[str] = []
    fs = Tracefs(str(tmp_path))
    monkeypatch.setattr(fs, "_write", lambda _event, line: written.append(line))
    both = ["fuse_daemon:bundle_1", "fuse_daemon:alone"]

    users.append(4711)
    refused.append("enable")
    assert fs.remove(both, 0.0) == both[:1]
    assert written == ["-:fuse_daemon/alone"]
    own = tmp_path / "events/fuse_daemon/bundle_1"
    assert (own / "filter").read_text() == "0"
    refused.clear()
    assert fs.remove(both[:1], 0.0) == []
    assert written[1:] == ["-:fuse_daemon/bundle_1"]
    assert (own / "enable").read_text() == "0"
    assert (own / "filter").read_text() == "common_pid == 0"  # while it was on
    written.pop()
    users.clear()
    for told in ("1\n", "0*\n"):
        (other / "events/fuse_daemon/bundle_1/enable").write_text(told)
        assert fs.remove(both[:1], 0.0) == both[:1]
    assert len(written) == 1
    (other / "events/fuse_daemon/bundle_1/enable").write_text("0\n")
    assert fs.remove(both[:1], 0.0) == []
    assert written[1:] == ["-:fuse_daemon/bundle_1"]
