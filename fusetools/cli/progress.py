"""A bar with the time left, on a terminal; elsewhere nothing."""

from __future__ import annotations

import sys
import time

import click

WIDTH = 20


class Progress:
    """``seconds``: the time left, if the caller knows it better than from what is done so far."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self.begin = time.monotonic()
        self.first: int | None = None  # what was done before this began

    def __call__(self, done: int, total: int, label: str, seconds: float | None = None) -> None:
        if not self.shown:
            return
        import shutil

        from fusetools.printable import printable
        from fusetools.render.text.layout import bar

        if self.first is None:
            self.first = done
        new = done - self.first
        if seconds is None and new:
            seconds = (time.monotonic() - self.begin) / new * (total - done)
        left = "" if seconds is None else f"{clock(seconds)} left  "
        line = (
            f"{done}/{total}  {bar(done, max(total, 1), WIDTH):{WIDTH}}  {left}{printable(label)}"
        )
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r\x1b[K{line[:width]}", nl=False, err=True)

    def clear(self) -> None:
        if self.shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def clock(seconds: float) -> str:
    """5 s, 1:05 min, 2:03 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"
