"""When stacks of waits are taken: of all while they are few, in slices of time else."""

from __future__ import annotations

from typing import Any

import pytest

from fusetools.plan.events import Event
from fusetools.plan.planner import ProbePlan
from fusetools.record.slices import MANY, PERIOD, SLICE, Slices

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


class Scene:
    """A recording of which ``rate`` bytes come a second, written in pieces; ``on``: for how long
    perf took stacks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.rate, self.bytes, self.on, self.told = 100.0, 0.0, 0.0, 0.0, [""]
        self.piece = (0, 0)
        self.taken = {SWITCH: True, ENTER: True}
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        parts: Any = self
        self.slices = Slices(PLAN, parts, parts)

    def written(self) -> int:
        number = int(self.now / 0.04)
        if number > self.piece[0]:
            self.piece = number, int(self.bytes)
        return self.piece[1]

    def tell(self, text: str, seconds: float) -> bool:
        word, name = text.split()
        assert self.taken[name] != (word == "enable"), "it is so already"
        self.taken[name] = word == "enable"
        self.told.append(text)
        return True

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            pause = self.slices.go_on()
            assert 0 <= pause <= 1.5 * PERIOD
            pause = max(pause, 1e-4)
            assert len(set(self.taken.values())) == 1
            self.on += pause * self.taken[SWITCH]
            self.now += pause
            self.bytes += pause * self.rate


def test_few_waits_have_their_stacks_all(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.rate = 0.9 * MANY
    scene.run(10)
    assert scene.told == [""]


def test_many_waits_have_them_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.rate = 2 * MANY
    scene.run(1)
    before = scene.on
    scene.run(100)
    share = (scene.on - before) / 100
    assert share == pytest.approx(SLICE / (SLICE + PERIOD), rel=0.1)
    assert {text.split()[1] for text in scene.told[1:]} == {SWITCH, ENTER}
    scene.rate = 0
    scene.run(1)
    assert all(scene.taken.values())
    told = len(scene.told)
    scene.run(10)
    assert len(scene.told) == told
