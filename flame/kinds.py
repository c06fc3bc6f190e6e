"""The kinds of frames, by which pictures are coloured: kernel, library, inlined …"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

# Told apart by those who see few colours too, and light enough for black text: orange, green,
# blue, yellow, purple, aqua, red, olive, grey. A kind's colour is that of its place.
COLOURS = (
    "#f0a35e",
    "#7fc987",
    "#8db7ee",
    "#e9d25b",
    "#c9a3e0",
    "#6fcfcf",
    "#f0928d",
    "#b9c46b",
    "#bdbdbd",
)


@dataclass(frozen=True)
class Kinds:
    """What kind each frame is of.

    of: a frame's name to its kind; None for one of no kind.
    names: the kinds, in the order of the legend and of COLOURS.
    """

    of: Callable[[str], str | None]
    names: tuple[str, ...]

    def colour(self, frame: str) -> tuple[int, int, int] | None:
        """A frame's red, green, blue: its kind's, a little lighter or darker by its name."""
        kind = self.of(frame)
        if kind is None or kind not in self.names:
            return None
        base = COLOURS[self.names.index(kind) % len(COLOURS)]
        shade = 0.92 + (zlib.crc32(frame.encode()) % 17) / 100
        r, g, b = (min(255, int(int(base[i : i + 2], 16) * shade)) for i in (1, 3, 5))
        return r, g, b


_SUFFIXES = {"_[k]": "kernel", "_[j]": "JIT", "_[i]": "inlined", "_[w]": "waker"}

# By the suffixes of the FlameGraph scripts.
ANNOTATIONS = Kinds(
    lambda frame: _SUFFIXES.get(frame[-4:], "user"), ("kernel", "user", "JIT", "inlined", "waker")
)


def annotated(frame: str) -> bool:
    """Whether the frame's name ends in a suffix of the FlameGraph scripts."""
    return frame[-4:] in _SUFFIXES
