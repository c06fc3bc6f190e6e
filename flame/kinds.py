"""The kinds of frames that determine colours: kernel, library, inlined …"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice

# Light enough for black text. A kind's position selects its colour.
COLOURS = {
    "orange": "#f0a35e",
    "green": "#7fc987",
    "blue": "#8db7ee",
    "yellow": "#e9d25b",
    "purple": "#c9a3e0",
    "aqua": "#6fcfcf",
    "red": "#f0928d",
    "olive": "#b9c46b",
    "grey": "#bdbdbd",
}


@dataclass(frozen=True)
class Kinds:
    """The kind of each frame.

    of: a frame's name to its kind; None: no kind.
    names: the kinds, in the order of the legend and of COLOURS.
    """

    of: Callable[[str], str | None]
    names: tuple[str, ...]

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The colour of each kind: its name and `#rrggbb`."""
        return list(islice(cycle(COLOURS.items()), len(self.names)))

    def colour(self, frame: str) -> tuple[int, int, int]:
        """Return a frame's red, green, blue: its kind's, slightly lighter or darker by its name."""
        kind = self.of(frame)
        if kind is None or kind not in self.names:
            return 205, 205, 205
        _, base = self.legend[self.names.index(kind)]
        shade = 0.92 + (zlib.crc32(frame.encode()) % 17) / 100
        r, g, b = (min(255, int(int(base[i : i + 2], 16) * shade)) for i in (1, 3, 5))
        return r, g, b


_SUFFIXES = {"_[k]": "kernel", "_[j]": "JIT", "_[i]": "inlined", "_[w]": "waker"}

# By the suffixes of the FlameGraph scripts.
ANNOTATIONS = Kinds(
    lambda frame: _SUFFIXES.get(frame[-4:], "user"), ("kernel", "user", "JIT", "inlined", "waker")
)


def annotated(frame: str) -> bool:
    """Return whether the frame's name ends in a suffix of the FlameGraph scripts."""
    return frame[-4:] in _SUFFIXES
