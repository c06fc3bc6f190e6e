"""What tracefs says of probes that it took: which are in the code, and the returns they missed."""

from __future__ import annotations

from pathlib import Path

from fusetools.plan.events import Probe
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
    """As Linux 5.10 gives them: 12,281 entries and 2,039 returns, and 5 faults in a handler."""
    fs = Tracefs(str(tmp_path))
    assert fs.missed_returns() == {}
    (tmp_path / "kprobe_profile").write_text(
        "  queue_request_and_unlock                             14057           11091\n"
        "  request_wait_answer                                  12281               5\n"
        "  request_wait_answer__return                           2039           10247\n"
    )
    assert fs.missed_returns() == {"request_wait_answer__return": 12281 - 2039}
