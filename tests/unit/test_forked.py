"""Work in a child process: its result, and what the child keeps."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import pytest

import fusetools
from fusetools.errors import Error
from fusetools.live.forked import Forked


class NotPickled(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fail(error: Exception) -> None:
    raise error


def test_the_result_comes_back_however_long_it_is() -> None:
    assert Forked(lambda: (os.getppid(), b"x" * (4 << 20))).result() == (
        os.getpid(),
        b"x" * (4 << 20),
    )


def test_ready_says_when_the_function_is_done() -> None:
    reader, writer = os.pipe()
    child = Forked(lambda: os.read(reader, 1), (reader,))
    assert not child.ready(0)
    os.write(writer, b"x")
    assert child.ready(60)
    assert child.result() == b"x"
    os.close(reader)
    os.close(writer)


def test_errors_come_back() -> None:
    with pytest.raises(Error) as caught:
        Forked(lambda: fail(Error("what", "why", "fix"))).result()
    assert (caught.value.what, caught.value.why, caught.value.fix) == ("what", "why", "fix")
    with pytest.raises(OSError) as refused:
        Forked(lambda: fail(OSError(errno.EDQUOT, "full", "file"))).result()
    assert (refused.value.errno, refused.value.filename) == (errno.EDQUOT, "file")
    with pytest.raises(Error, match="not written") as other:
        Forked(lambda: fail(NotPickled(1, 2))).result()
    assert other.value.why == "NotPickled: 1 and 2"


def test_a_defect_has_the_child_s_traceback() -> None:
    with pytest.raises(ValueError) as caught:
        Forked(lambda: fail(ValueError("a defect"))).result()
    assert "in fail" in str(caught.value.__cause__)


def test_a_child_that_is_killed_is_an_error() -> None:
    child = Forked(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Error) as caught:
        child.result()
    assert caught.value.why == "its process was ended by signal 9"


def test_a_grandchild_that_hangs_is_not_waited_for() -> None:
    def leave_one() -> int:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        return pid

    grandchild = Forked(leave_one).result()
    assert Path(f"/proc/{grandchild}").exists()
    os.kill(grandchild, signal.SIGKILL)


def test_the_child_keeps_no_lock_and_no_output() -> None:
    reader, writer = os.pipe()

    def held() -> list[str]:
        names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        return sorted(os.readlink(name) for name in names if os.path.exists(name))

    links = Forked(held, (reader,)).result()
    kept = os.readlink(f"/proc/self/fd/{reader}")
    # The pipe of its answer, and the descriptor of the list itself.
    assert [link for link in links if link == "/dev/null"] == ["/dev/null"] * 3
    assert kept in links and len(links) <= 6, links
    os.close(reader)
    os.close(writer)


def test_the_child_dies_with_its_parent() -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        child = Forked(signal.pause)
        os.write(writer, str(child.pid).encode())
        signal.pause()
    pid = int(os.read(reader, 20))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/fd/0").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    os.close(reader)
    os.close(writer)


def test_a_child_reads_a_recording_after_its_parent_has_read_one() -> None:
    """The reading threads exist only in the process that started them."""
    demo = Path(__file__).parents[2] / "samples" / "recordings" / "demo.data"

    def read() -> int:
        return sum(count.count for count in fusetools.open(demo).counts().counts)

    counted = read()
    child = Forked(read)
    try:
        assert child.ready(60)
    except AssertionError:
        os.kill(child.pid, signal.SIGKILL)
        raise
    assert child.result() == counted
