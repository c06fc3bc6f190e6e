"""Figures in words: times, sizes, counts."""

from __future__ import annotations

UNITS = ("ns", "us", "ms")
NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
# Units of sizes as users write them: 64k, 500M.
BYTES = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def duration(ns: float | None, unit: str = "") -> str:
    """Nanoseconds with their unit: in three digits, the unit chosen to fit, or all in ``unit``."""
    if ns is None:
        return "-"
    if unit == "ns":
        return f"{ns:,.0f} ns"
    if unit:
        return f"{ns / NS[unit]:,.3f} {unit}"
    if abs(ns) < 999.5:
        return f"{ns:.0f} ns"
    name = next((name for name, scale in NS.items() if abs(ns / scale) < 999.5), "s")
    value = ns / NS[name]
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{digits}f} {name}"


def took(seconds: float) -> str:
    """A recording's length: "3.2 s", or "38.1 ms" if it is short."""
    return f"{seconds:,.1f} s" if seconds >= 0.1 else duration(1e9 * seconds)


def number(value: float | None, sign: str = "") -> str:
    """A count with thousands separators; rates get three digits."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 99.95 or not value:
        return f"{value:{sign},.0f}"
    return f"{value:{sign},.{1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3}f}"


def plural(n: int, word: str, words: str = "") -> str:
    """``words``: the plural, if it is not the word with an s."""
    return f"{number(n)} {word if n == 1 else words or f'{word}s'}"


def at_least(ns: float | None, unit: str, least: int | None) -> str:
    """A duration; with ">" from ``least`` ns on: it did not end."""
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


def binary(bytes_: int) -> str:
    """A limit or another setting as users write it: 64M."""
    unit = next((u for u in "GMk" if bytes_ and bytes_ % BYTES[u] == 0), "")
    return f"{bytes_ // BYTES[unit]}{unit}"


def share(n: float, whole: float) -> str:
    """Per cent; "" if the whole is 0."""
    return f"{100 * n / whole:.1f} %" if whole else ""
