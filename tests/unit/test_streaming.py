"""perf's output to a pipe is read in time, whether perf answers or is too busy to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fusetools.errors import Error
from fusetools.record import streaming
from fusetools.record.streaming import Piped, Streaming


class _Stream(Streaming):
    """Lines of a perf that a test replaces."""

    rounds = 0

    def __init__(self, perf: Piped) -> None:
        self.recorders = SimpleNamespace(perfs=SimpleNamespace(first=perf))  # type: ignore[assignment]
        self.fed: list[bytes] = []
        facts = SimpleNamespace(perf=SimpleNamespace(version="6.1"))
        self.job = SimpleNamespace(facts=facts)  # type: ignore[assignment]
        self.requests = SimpleNamespace(  # type: ignore[assignment]
            feed=self.fed.append, by_rounds=lambda: self.rounds, complete=lambda upto: None
        )


@pytest.fixture
def perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Piped]:
    monkeypatch.setattr(Piped, "ended", False)
    perf = Piped(tmp_path)
    yield perf
    perf.close()


def test_two_answers_show_that_all_has_been_written(perf: Piped) -> None:
    assert perf.stdout is not None
    asked: list[bytes] = []

    def play() -> None:
        for number in range(3):
            while b"\n" not in (word := _word(perf)):
                time.sleep(0.001)
            asked.append(word)
            os.write(perf.stdout or -1, b"%d" % number)
            os.write(perf._answer, b"ack\n\0")

    stream = _Stream(perf)
    perf.ask("disable")  # without waiting for its answer, which does not answer later requests
    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    before = time.monotonic_ns()
    assert before <= stream.advance() <= time.monotonic_ns()
    thread.join(10)
    assert asked == [b"disable\n", b"ping\n", b"ping\n"]
    assert b"".join(stream.fed) == b"012"


def test_requests_from_before_the_kernel_had_none_are_over(
    perf: Piped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts are older than what is read after them."""
    stream = _Stream(perf)
    stream.rounds = time.monotonic_ns() + 10**12
    given_up: list[tuple[list[int], int]] = []
    monkeypatch.setattr(stream.requests, "forget", lambda *what: given_up.append(what), False)
    targets = [SimpleNamespace(mount=SimpleNamespace(connection=n)) for n in (40, 41, 42, None)]
    stream.job.plan = SimpleNamespace(targets=targets)  # type: ignore[assignment]
    read_at: list[int] = []

    def waiting(connections: Iterable[int]) -> dict[int, int]:
        assert [*connections] == [40, 41, 42]
        read_at.append(time.monotonic_ns())
        return {40: 0, 41: 2}  # and none of a mount that has gone

    monkeypatch.setattr(streaming, "waiting", waiting)
    stream.advance()
    assert given_up == []
    before = time.monotonic_ns()
    assert stream.waiting() == {40: 0, 41: 2}
    stream.advance()
    [(connections, since)] = given_up
    assert connections == [40]
    assert before <= since <= read_at[0]


def test_a_perf_that_has_no_time_to_answer_is_read_by_its_rounds(perf: Piped) -> None:
    """While events keep coming, perf reads no commands (builtin-record.c)."""
    stream = _Stream(perf)
    end = threading.Event()

    def play() -> None:
        while not end.wait(0.001):
            os.write(perf.stdout or -1, b"round")
            stream.rounds = time.monotonic_ns() - 2_000_000

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        first, second = stream.advance(), stream.advance()
    finally:
        end.set()
        thread.join(10)
    assert first < second
    assert _word(perf) == b"ping\n"  # no new request before it answers


def test_a_perf_that_neither_answers_nor_writes(
    perf: Piped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "PATIENCE", 100_000_000)
    with pytest.raises(Error, match="perf records no more"):
        _Stream(perf).advance()


def test_a_perf_that_has_ended_is_not_waited_for(
    perf: Piped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pipe is readable from then on, without data."""
    assert perf.stdout is not None
    os.close(perf.stdout)
    perf.stdout = None
    monkeypatch.setattr(Piped, "ended", True)
    assert not perf.look(0)
    begin, clock = time.monotonic(), iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: begin + next(clock))
    assert not perf.tell("enable", 500.0)
    assert next(clock) < 10


def _word(perf: Piped) -> bytes:
    try:
        return os.read(perf._control, 64)
    except BlockingIOError:
        return b""
