"""Requests' stories on recordings, as columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fusetools

DEMO = Path(__file__).parents[2] / "samples/recordings/demo.data"


def test_demo() -> None:
    recording = fusetools.open(DEMO)
    stories = recording.stories()
    requests = recording.requests()
    assert stories.fated("matched").all()
    for name in ("connection", "unique", "opcode", "error", "pid", "tid"):
        assert (getattr(stories, name) == getattr(requests, name)).all()
    assert (stories.begin_ns == requests.begin_ns).all()
    assert (stories.end_ns == requests.end_ns).all()
    assert (stories.callback_enter_ns == requests.callback_start_ns).all()
    assert (stories.callback_return_ns == requests.callback_end_ns).all()
    # All except the releases have a waiting caller and pass all stages.
    waits = stories.waits == 1
    released = stories.of("release") | stories.of("releasedir")
    assert released.sum() > 30 and (waits != released).all()
    order = ("begin", "read", "callback_enter", "reply", "end", "waking", "runs")
    times = [getattr(stories, f"{name}_ns")[waits].astype(np.int64) for name in order]
    assert all((b >= a).all() and a.all() for a, b in zip(times, times[1:]))
    first = stories.nth[waits] == 0
    assert ((stories.sys_enter_ns[waits] > 0) == first).all()
    assert ((stories.resumed_ns[waits] > 0) == ~first).all()
