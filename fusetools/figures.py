"""Formatting of figures for people: times, sizes, counts."""

from __future__ import annotations

import os
import signal

UNITS = ("ns", "us", "ms")
NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
# Factors of the unit letters in sizes that users write: 64k, 500M.
BYTES = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def duration(ns: float | None, unit: str = "") -> str:
    """Format nanoseconds with three significant digits, in ``unit`` or in the unit that fits."""
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
    """Format a recording's length: "3.2 s", "38.1 ms", "2.4 h"."""
    if seconds >= 1000:
        return ago(seconds)
    return f"{seconds:,.1f} s" if seconds >= 0.1 else duration(1e9 * seconds)


def ago(seconds: float | None) -> str:
    """Format how long something has lasted until now: "0.3 s", "312 s", "2.4 h"."""
    if seconds is None:
        return "unknown"
    if seconds < 1000:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.1f} days" if days < 100 else f"{days:,.0f} days"


def number(value: float | None, sign: str = "") -> str:
    """Format a count with thousands separators, or a rate with three significant digits."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 99.95 or not value:
        return f"{value:{sign},.0f}"
    return f"{value:{sign},.{1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3}f}"


def plural(n: int, word: str, words: str = "") -> str:
    """Format a count and its noun. ``words``: a plural other than the word with an s."""
    return f"{number(n)} {word if n == 1 else words or f'{word}s'}"


def at_least(ns: float | None, unit: str, least: int | None) -> str:
    """Format a duration. From ``least`` ns it begins with ">", as it did not end."""
    over = ns is not None and least is not None and ns >= least
    return (">" if over else "") + duration(ns, unit)


def percent(value: float | None) -> str:
    """Format a change in per cent, with its sign and without the unit."""
    return "" if value is None else f"{value:+,.{1 if abs(value) < 99.95 else 0}f}"


def size(bytes_: float | None) -> str:
    """Format bytes with three significant digits, in decimal units."""
    if bytes_ is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= 0.9995 * scale:
            return f"{number(bytes_ / scale)} {unit}"
    return f"{number(float(round(bytes_)))} B"


def binary(bytes_: int) -> str:
    """Format a size as users write it in an option: 64M. Inverse of BYTES."""
    unit = next((u for u in "GMk" if bytes_ and bytes_ % BYTES[u] == 0), "")
    return f"{bytes_ // BYTES[unit]}{unit}"


def share(n: float, whole: float) -> str:
    """Format n as per cent of the whole; "" if the whole is 0."""
    return f"{100 * n / whole:.1f} %" if whole else ""


def signal_name(number: int) -> str:
    """Return the name of a signal, e.g. SIGALRM; "" for 0."""
    if not number:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending(status: int) -> str:
    """Return how a process ended, by its status as of waitpid(2): "SIGSEGV (core dumped)", "exit
    status 1"."""
    if os.WIFSIGNALED(status):
        return signal_name(os.WTERMSIG(status)) + " (core dumped)" * os.WCOREDUMP(status)
    return f"exit status {os.WEXITSTATUS(status)}"
