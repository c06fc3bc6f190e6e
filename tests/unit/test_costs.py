"""The cost of recording, measured by two processes, with and without recording in turn."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import wait_until

from fusetools.record import costs
from fusetools.record.costs import ROUNDS, SYSTEM_CALLS, Costs, RoundTrip


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_round_trip_is_four_system_calls_and_two_waits() -> None:
    processes = costs._Processes()
    try:
        trip = processes.round_trip(0)
        assert trip is not None
        assert trip.ns > 100
        # A process that is preempted meanwhile has one more switch.
        assert 2 * SYSTEM_CALLS + 3 <= trip.events < 2 * SYSTEM_CALLS + 8
    finally:
        processes.close()


def test_calls_of_the_probed_function_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it computes for some 0.1 ms."""
    monkeypatch.setattr(
        "fusetools.record.costs.native.calibrate", lambda calls: sum(range(calls * 10_000))
    )
    processes = costs._Processes()
    try:
        trips = [processes.round_trip(calls) for calls in (0, 1)]
        none, one = (trip.ns if trip else 0 for trip in trips)
        assert 0 < none < one
    finally:
        processes.close()


@pytest.fixture
def measured() -> Iterator[Costs]:
    measured = Costs()
    assert measured.pair() is not None  # both run
    yield measured
    measured.close()


def test_nothing_is_left_of_the_processes(measured: Costs) -> None:
    (caller,) = (pid for pid in children(os.getpid()) if children(pid))
    (responder,) = children(caller)
    measured.close()
    wait_until(lambda: not Path(f"/proc/{responder}").exists(), "the end of who answers")
    assert not Path(f"/proc/{caller}").exists()


def test_processes_that_are_killed_measure_nothing(measured: Costs) -> None:
    (caller,) = (pid for pid in children(os.getpid()) if children(pid))
    os.kill(caller, signal.SIGKILL)
    assert measured.pair() is None
    assert measured.event(lambda _: None) is None


class Told:
    """Processes whose round trips take given times, longer and longer as the CPU slows down."""

    def __init__(self, cost: float) -> None:
        self.ns, self.on, self.cost, self.calls = 1000.0, False, cost, list[int]()

    def switch(self, on: bool) -> None:
        self.on = on

    def round_trip(self, calls: int) -> RoundTrip:
        self.ns += 20
        self.calls.append(calls)
        return RoundTrip(self.ns + self.cost * self.on, 12.0)


def test_cost_is_measured_with_and_without_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(960)
    monkeypatch.setattr(costs, "_Processes", lambda: told)
    measured = Costs()
    # 20 ns of each step are the CPU's.
    assert measured.event(told.switch) == (960 + 20) / (2 * SYSTEM_CALLS)
    assert measured.thrown_away(told.switch) == pytest.approx((960 + 20) / 12)
    told.calls.clear()
    told.on = False
    assert measured.pair() == 20
    assert told.calls == [0, 1] * ROUNDS


def test_it_is_never_less_than_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(-500)
    monkeypatch.setattr(costs, "_Processes", lambda: told)
    assert Costs().event(told.switch) == 0.0
