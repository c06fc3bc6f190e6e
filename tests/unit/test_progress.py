"""The progress bar."""

from __future__ import annotations

import time

import pytest

from fusetools.cli.progress import Progress, clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (3599, "59:59 min"), (7384, "2:03 h")],
)
def test_time_left(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> Progress:
    """On a terminal of 70 columns, where a second passes at each read of the clock.

    pytest sees no code that clears a line, as it is no terminal.
    """
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setenv("COLUMNS", "70")
    shown = Progress()
    shown.shown = True
    return shown


def test_a_line_says_how_far_and_how_long(
    bar: Progress, capsys: pytest.CaptureFixture[str]
) -> None:
    bar(0, 40, "bs=4k, round 1")
    assert capsys.readouterr().err == f"\r0/40  {' ' * 20}  bs=4k, round 1"
    bar(10, 40, "bs=16k, round 1")  # 10 of them took a second
    assert capsys.readouterr().err.endswith(f"10/40  {'█' * 5:20}  3 s left  bs=16k, round 1")
    bar(20, 40, "x", 90.0)
    assert "  1:30 min left  x" in capsys.readouterr().err
    bar.clear()
    assert capsys.readouterr().err == "\r"


def test_progress_ignores_earlier_speed(bar: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    bar(30, 40, "a")
    assert "left" not in capsys.readouterr().err
    bar(31, 40, "b")
    assert "9 s left" in capsys.readouterr().err


def test_a_line_fits_and_steers_nothing(bar: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    bar(1, 2, "\x1b[2J" + "x" * 200)
    said = capsys.readouterr().err.removeprefix("\r")
    assert len(said) == 69 and "\x1b" not in said


def test_nothing_is_said_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress()
    shown(1, 2, "a")
    shown.clear()
    assert capsys.readouterr().err == ""
