"""When stacks of waits are taken: all while they are few, else in slices of time."""

from __future__ import annotations

import pytest

from fusetools.plan.events import Event
from fusetools.plan.planner import ProbePlan
from fusetools.record.slices import BURST, LOOK, MANY, PERIOD, SLICE, Slices

SWITCH, ENTER = "sched:sched_switch", "raw_syscalls:sys_enter"
PLAN = ProbePlan(
    targets=(),
    probes=(),
    events=(
        Event(SWITCH, stack="fp"),
        Event(SWITCH, stack="dwarf"),
        Event(ENTER, stack="dwarf"),
        Event("cpu-clock", stack="fp", frequency=99),
        Event(SWITCH, ftrace=True),
    ),
)


BYTES = 32  # of an event of ftrace


class Scene:
    """Return a recording of ``rate`` events per second, written in pieces.

    ``on``: for how long perf took stacks. ``copies``: bytes of copies per second.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, events: int = 0) -> None:
        self.now, self.rate, self.events, self.told = 100.0, 0.0, float(events), [""]
        self.copies, self.stacks, self.looks = 0.0, 0.0, 0
        self.on = {SWITCH: 0.0, ENTER: 0.0}
        self.piece = (0, 0)
        self.taken = {SWITCH: True, ENTER: True}
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.thread_time", lambda: 1e-5 * self.looks)
        self.slices = Slices(PLAN, self.tell, self.count, self.sizes)

    def count(self) -> int:
        self.looks += 1
        return int(self.events)

    def sizes(self) -> tuple[int, int]:
        number = int(self.now / 0.04)
        if number > self.piece[0]:
            self.piece = number, int(self.events) * BYTES
        return int(self.stacks), self.piece[1]

    def tell(self, text: str, seconds: float) -> bool:
        word, name = text.split()
        assert self.taken[name] != (word == "enable"), "it is so already"
        self.taken[name] = word == "enable"
        self.told.append(text)
        return True

    def run(self, seconds: float, longest: float = 1.5 * PERIOD) -> None:
        end = self.now + seconds
        while self.now < end:
            pause = self.slices.go_on()
            assert 0 <= pause <= longest
            pause = max(pause, 1e-4)
            assert self.taken[ENTER] or not self.taken[SWITCH]
            for name, on in self.taken.items():
                self.on[name] += pause * on
            self.now += pause
            self.stacks += pause * (self.taken[ENTER] * self.copies + self.taken[SWITCH] * 1e7)
            self.events += pause * self.rate


def test_few_waits_have_their_stacks_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.rate = 0.9 * MANY
    scene.run(10)
    assert scene.told == [""]


def test_events_of_arming_are_not_the_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted and written, too: the beginning had no stacks."""
    scene = Scene(monkeypatch, events=MANY)
    scene.rate = 0.5 * MANY
    scene.run(1)
    assert scene.told == [""]


@pytest.mark.parametrize("copies", [0.0, 0.6, 1.4])
def test_many_waits_have_them_in_slices(copies: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls that may wait for another thread have stacks, unless they are many."""
    scene = Scene(monkeypatch)
    scene.rate, scene.copies = 2 * MANY, copies * 2 * MANY * BYTES
    scene.run(10)
    before = dict(scene.on)
    scene.run(100)
    share = {name: (on - before[name]) / 100 for name, on in scene.on.items()}
    in_part = pytest.approx(SLICE / (SLICE + PERIOD), rel=0.1)
    assert share == {SWITCH: in_part, ENTER: in_part if copies > 1 else pytest.approx(1, rel=0.01)}
    scene.rate = 0
    scene.run(1)
    assert all(scene.taken.values())
    told = len(scene.told)
    scene.run(10)
    assert len(scene.told) == told


def test_a_short_burst_is_noticed_and_its_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a command of 0.1 s would have all stacks taken, and be 50 % slower."""
    scene = Scene(monkeypatch)
    for _ in range(20):
        scene.rate = 4 * MANY
        before = scene.on[SWITCH]
        scene.run(0.1)
        rounding = 1e-9  # rounding of sums of floats, for two complete slices
        assert scene.on[SWITCH] - before <= BURST / 4 + LOOK + 2 * SLICE + rounding
        # 4 * MANY in 0.1 s are few over more than 0.4 s; checked every 0.08 s at least.
        scene.rate = 0
        scene.run(0.5)
        assert scene.taken[SWITCH]


def test_a_command_of_some_hundred_requests_has_all_stacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As fast as it makes them; the next one follows a while later."""
    scene = Scene(monkeypatch)
    for _ in range(20):
        scene.rate = 1.2 * MANY
        scene.run(0.02)
        scene.rate = 0
        scene.run(0.3)
    assert scene.told == [""]


@pytest.mark.parametrize("took, looks", [(1e-5, 1000), (1e-3, 100)])
def test_looking_takes_a_small_part_of_the_time(
    took: float, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are many CPUs to count on, too."""
    scene = Scene(monkeypatch)
    monkeypatch.setattr("time.thread_time", lambda: took * scene.looks)
    scene.rate = 0.5 * MANY
    before = scene.looks
    scene.run(10, 0.11)
    assert scene.looks - before == pytest.approx(looks, rel=0.02)
