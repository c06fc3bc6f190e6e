"""Figures in words: times, sizes, counts."""

from __future__ import annotations

UNITS = ("ns", "us", "ms")


_SIZES = (("us", 1e3), ("ms", 1e6), ("s", 1e9))


def duration(ns: float | None, unit: str = "") -> str:
    """Nanoseconds with their unit: in three digits, the unit chosen to fit, or all in ``unit``."""
    if ns is None:
        return "-"
    if unit == "ns":
        return f"{ns:,.0f} ns"
    if unit:
        return f"{ns / dict(_SIZES)[unit]:,.3f} {unit}"
    if abs(ns) < 999.5:
        return f"{ns:.0f} ns"
    name, size = next((s for s in _SIZES if abs(ns / s[1]) < 999.5), _SIZES[-1])
    value = ns / size
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{digits}f} {name}"


def took(seconds: float) -> str:
    """A recording's length: "3.2 s", of a short one "38.1 ms"."""
    return f"{seconds:,.1f} s" if seconds >= 0.1 else duration(1e9 * seconds)


def number(value: float | None, sign: str = "") -> str:
    """A count with thousands separators; rates get three digits."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 99.95 or not value:
        return f"{value:{sign},.0f}"
    return f"{value:{sign},.{1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3}f}"


def plural(n: int, word: str) -> str:
    return f"{number(n)} {word}{'' if n == 1 else 's'}"


def at_least(ns: float | None, unit: str, least: int | None) -> str:
    """A duration; of one from ``least`` ns on, ">": it did not end."""
    over = ns is not None and least is not None and ns >= least
    return (">" if over else "") + duration(ns, unit)


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:+,.{1 if abs(value) < 99.95 else 0}f}"


def size(bytes_: float | None) -> str:
    """Bytes in three digits."""
    if bytes_ is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= 0.9995 * scale:
            return f"{number(bytes_ / scale)} {unit}"
    return f"{number(float(round(bytes_)))} B"


def share(n: int, whole: int) -> str:
    return f"{100 * n / whole:.1f} %" if whole else ""
