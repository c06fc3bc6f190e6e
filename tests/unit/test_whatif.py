"""`fusetools whatif`: replays with other limits. core/src/answers/whatif.rs tests the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures import Invoke

import fusetools
from fusetools.answers import whatif
from fusetools.errors import Error
from fusetools.reasons import Code
from fusetools.render.text.whatif import render
from fusetools.results.whatif import WhatIf

CHANGE = whatif.Change(4, 0, 0, 0, 0)
DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"


def replay(waited: int) -> dict[str, Any]:
    return {"waited": waited, "no_cpu": 7, "operations": {"read": (10, waited)}}


def mount(**more: Any) -> Any:
    values = {
        "connection": 5,
        "requests": 10,
        "left_out": 0,
        "handed": 0,
        "ring": 0,
        "writes": 0,
        "unsure": 0,
        "threads": 1,
        "callers": 4,
        "saved": 0,
        "recorded": replay(1000),
        "same": [replay(800), replay(1000)],
        "changed": [replay(400), replay(250)],
    }
    return {**values, **more}


def test_the_estimate_is_the_model_that_fits_best() -> None:
    row = whatif._mount("/mnt", mount(), CHANGE, False, {})
    assert (row.waited_ns, row.replayed_ns) == (250, 1000)
    # The other model says half of the recorded time.
    assert (row.low_ns, row.high_ns) == (250, 500)
    assert [(o.operation, o.recorded_ns, o.waited_ns) for o in row.operations] == [
        ("read", 1000, 250)
    ]


@pytest.mark.parametrize(
    ("change", "locked", "code"),
    [
        ({"handed": 1}, False, Code.REPLAY_HANDED),
        ({"ring": 6}, False, Code.REPLAY_RING),
        ({}, True, Code.REPLAY_LOCK),
        ({"same": [replay(700), replay(1300)]}, False, Code.REPLAY_DEVIATES),
        ({"recorded": replay(0)}, False, Code.REPLAY_EMPTY),
    ],
)
def test_no_estimate_where_the_model_does_not_hold(
    change: dict[str, Any], locked: bool, code: Code
) -> None:
    row = whatif._mount("/mnt", mount(**change), CHANGE, locked, {})
    assert row.unknown is not None and row.unknown.code is code
    assert (row.waited_ns, row.low_ns, row.high_ns, row.operations) == (None, None, None, ())


def test_timeouts_need_no_known_threads() -> None:
    assert (
        whatif._mount(
            "/mnt", mount(handed=1, ring=10), whatif.Change(0, 1, 1, 1, 0), False, {}
        ).unknown
        is None
    )


def test_a_recording_replayed_without_a_change_equals_it() -> None:
    recording = fusetools.open(DEMO)
    (row,) = recording.whatif(["threads=2"]).mounts
    assert row.threads == 2 and row.callers == 1
    assert row.replayed_ns == pytest.approx(row.recorded_ns, rel=0.05)
    # From the request's begin until the caller runs again: all stages but those of the VFS.
    stages = ("setup", "vfs_entry", "vfs_exit")
    waited = sum(
        stage.total_ns
        for o in recording.stages().operations
        if o.waits
        for stage in o.stages
        if not any(name in stage.name for name in stages)
    )
    assert row.recorded_ns == pytest.approx(waited, rel=0.01)


def test_timeouts_save_what_why_counts() -> None:
    recording = fusetools.open(DEMO)
    saved = [
        recording.whatif([f"{name}=60"]).mounts[0].saved
        for name in ("entry_timeout", "attr_timeout")
    ]
    both = recording.whatif(["entry_timeout=60", "attr_timeout=60"]).mounts[0]
    assert both.saved == sum(saved) > 0
    assert both.waited_ns is not None and both.waited_ns < both.recorded_ns


def test_text_and_json_have_the_same_figures(run: Invoke) -> None:
    text = run("whatif", "-i", str(DEMO), "attr_timeout=60").output
    (row,) = json.loads(run("whatif", "-i", str(DEMO), "attr_timeout=60", "--json").output)[
        "mounts"
    ]
    assert f"{row['saved']} requests of {row['requests']} would not be made" in text
    assert "assumed: " in text and "are left out (max_background=N" in text.replace("\n", " ")


@pytest.mark.parametrize(
    "setting",
    [
        "threads",
        "threads=",
        "threads=0",
        "threads=1.5",
        "max_background=0",
        "max_background=1.5",
        "speed=2",
        "attr_timeout=0",
        "=1",
    ],
)
def test_a_wrong_setting_is_an_error_with_an_example(setting: str) -> None:
    with pytest.raises(Error) as error:
        whatif.parse([setting])
    assert error.value.fix == "fusetools whatif threads=8"


@pytest.mark.parametrize(
    ("change", "limits", "code"),
    [
        ({}, {}, Code.REPLAY_LIMIT),
        ({"writes": 3}, {5: 12}, Code.REPLAY_WRITES),
        ({"unsure": 3}, {5: 12}, Code.REPLAY_STACKS),
        ({"same": [replay(700), replay(1300)]}, {5: 12}, Code.REPLAY_DEVIATES),
    ],
)
def test_no_estimate_where_the_background_list_is_not_recorded(
    change: dict[str, Any], limits: dict[int, int], code: Code
) -> None:
    row = whatif._mount("/mnt", mount(**change), whatif.parse(["max_background=64"]), False, limits)
    assert row.unknown is not None and row.unknown.code is code and row.waited_ns is None
    assert (
        whatif._mount("/mnt", mount(), whatif.Change(0, 0, 0, 0, 64), False, {5: 12}).waited_ns
        == 250
    )


def test_a_limit_by_cpus_is_printed() -> None:
    row = whatif._mount("/mnt", mount(), CHANGE, False, {})
    facts = fusetools.open(DEMO).whatif(["threads=2"]).facts
    for no_cpu, said in ((7, False), (100, True)):
        result = WhatIf((replace(row, no_cpu_ns=no_cpu),), ("threads=4",), 2, facts)
        assert ("CPUs are the limit: for 100 ns of that time" in render(result)) == said
