"""A refreshed full screen of a terminal, by the standard library's curses.

In contrast to rich's Live, it reads keys, needs no installation, and restores the terminal.
"""

from __future__ import annotations

import curses
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fusetools.names import TOP_BY, TOP_SORTS
from fusetools.printable import printable
from fusetools.results.top import Top

if TYPE_CHECKING:
    from fusetools.live.top import View, Watch

STEP = 0.2  # seconds between two looks at callers
HELP = "q quit  b by  s sort  / filter  p pause"


Lines = Callable[[Top, int], "list[str]"]  # of an interval, for a number of columns


def run(watch: Watch, view: View, interval: float, lines: Lines, most: int | None) -> int:
    """Show intervals until q or a signal; the number of lost events."""
    return int(curses.wrapper(_Screen(watch, view, interval, lines, most).run))


class _Screen:
    def __init__(
        self,
        watch: Watch,
        view: View,
        interval: float,
        lines: Lines,
        most: int | None,
    ) -> None:
        self.watch, self.view, self.interval = watch, view, interval
        self.lines, self.most = lines, most
        self.top: Top | None = None
        self.paused = False
        self.typed: str | None = None  # a filter that is being typed
        self.lost = 0

    def run(self, window: curses.window) -> int:
        curses.curs_set(0) if curses.tigetstr("civis") else None
        window.nodelay(True)
        window.keypad(True)
        end = time.monotonic() + self.interval
        self.draw(window)
        while not self.watch.stream.wait(STEP, keys=0):
            while (key := window.getch()) != -1:
                if not self.key(key):
                    return self.lost
                self.draw(window)
            if time.monotonic() < end:
                self.watch.meanwhile(self.view)
                continue
            end = time.monotonic() + self.interval
            rows = window.getmaxyx()[0]
            top = self.watch.interval(replace(self.view, most=self.most or max(rows - 4, 1)))
            self.lost += top.lost
            if not self.paused:
                self.top = top
                self.draw(window)
        return self.lost

    def key(self, key: int) -> bool:
        """Handle a key; False: quit."""
        if self.typed is not None:
            if key in (10, 13, curses.KEY_ENTER):
                self.view.contains, self.typed = self.typed, None
            elif key == 27:
                self.typed = None
            elif key in (8, 127, curses.KEY_BACKSPACE):
                self.typed = self.typed[:-1]
            elif 32 <= key < 127:
                self.typed += chr(key)
            return True
        if key == ord("q"):
            return False
        if key == ord("b"):
            self.view.by = _next(TOP_BY, self.view.by)
        elif key == ord("s"):
            self.view.sort = _next(TOP_SORTS, self.view.sort)
        elif key == ord("p"):
            self.paused = not self.paused
        elif key == ord("/"):
            self.typed = ""
        return True

    def draw(self, window: curses.window) -> None:
        rows, columns = window.getmaxyx()
        window.erase()
        state = [f"by {self.view.by}", f"sorted by {self.view.sort}"]
        if self.view.contains:
            state.append(f"with {printable(self.view.contains)!r}")
        if self.paused:
            state.append("PAUSED")
        foot = f"filter: {self.typed}_" if self.typed is not None else HELP
        text = [", ".join(state) + "   " + foot]
        text += (
            self.lines(self.top, columns - 1) if self.top else ["waiting for the first interval"]
        )
        for number, line in enumerate(text[:rows]):
            style = curses.A_REVERSE if number == 0 else curses.A_NORMAL
            # The last cell of a screen cannot be written.
            window.addnstr(number, 0, line.ljust(columns - 1), columns - 1, style)
        window.refresh()


def _next(values: Sequence[str], value: str) -> str:
    """Return the value after this one, the first after the last."""
    return values[(values.index(value) + 1) % len(values)]
