"""Latency over time as text."""

from __future__ import annotations

import math

from fusetools.figures import duration
from fusetools.render.text.footer import footer, missing, nothing
from fusetools.render.text.layout import Whole, lines, prose, width
from fusetools.results.heat import Heat

_SHADES = " ░▒▓█"
_EDGES = 12  # columns of a row's latency and of its frame


def columns() -> int:
    """Return how many columns of time there is room for, at most 60."""
    return min(60, width() - _EDGES)


def render(result: Heat) -> str:
    """Return a map: time from left to right, latency upwards, darker cells for more requests."""
    output = _map(result) if result.rows else nothing(result.facts)
    return lines([*output, "", *footer(result.facts), *missing(result.facts.missing, ("request",))])


def _map(result: Heat) -> list[str]:
    most = max(n for row in result.rows for n in row.requests)
    columns = len(result.rows[0].requests)
    output = ["  LATENCY"]
    for row in reversed(result.rows):
        cells = "".join(_shade(n, most) for n in row.requests)
        output.append(Whole(f"{duration(row.low_ns):>9} |{cells}|"))
    start, end = result.start_ns, result.start_ns + columns * result.column_ns
    left, right = f"{start / 1e9:.3f} s", f"{end / 1e9:.3f} s"
    output.append(" " * 11 + left + right.rjust(columns - len(left)))
    shades = ", ".join(
        f"{shade} {low:,}{f' to {high:,}' if low < high else ''}"
        for shade, low, high in _ranges(most)
    )
    text = f"requests in {duration(result.column_ns)}: {shades}; a row is twice the one below"
    return [*output, *prose(text)]


def _level(n: int, most: int) -> int:
    """Return a shade's number for a count, logarithmic; 0: none."""
    if not n:
        return 0
    levels = len(_SHADES) - 1
    return 1 + min(int(levels * math.log(n) / math.log(most + 1)), levels - 1)


def _shade(n: int, most: int) -> str:
    return _SHADES[_level(n, most)]


def _ranges(most: int) -> list[tuple[str, int, int]]:
    """Return the used shades, each with its lowest and highest count."""
    levels = len(_SHADES) - 1
    lows: dict[int, int] = {}
    for exponent in range(levels):
        low = math.ceil((most + 1) ** (exponent / levels))
        while _level(low, most) < exponent + 1 and low < most:
            low += 1
        if low <= most:
            lows.setdefault(_level(low, most), low)
    used = sorted(lows.items())
    highs = [low - 1 for _, low in used[1:]] + [most]
    return [(_SHADES[level], low, high) for (level, low), high in zip(used, highs)]
