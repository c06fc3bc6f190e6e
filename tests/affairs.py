"""Parses the `internal affairs` output of the CernVM-FS client and of the sample file system.

Also parses the sample file system's answer to `calls`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BINS = 30
# The client's headings; only the sample file system prints the last three.
CALLBACKS = {
    "Lookup": "cvmfs_lookup",
    "Forget": "cvmfs_forget",
    "Multi-Forget": "cvmfs_forget_multi",
    "Getattr": "cvmfs_getattr",
    "Readlink": "cvmfs_readlink",
    "Opendir": "cvmfs_opendir",
    "Releasedir": "cvmfs_releasedir",
    "Readdir": "cvmfs_readdir",
    "Open": "cvmfs_open",
    "Read": "cvmfs_read",
    "Release": "cvmfs_release",
    "Statfs": "cvmfs_statfs",
    "Getxattr": "cvmfs_getxattr",
    "Listxattr": "cvmfs_listxattr",
}

_BIN = re.compile(r" *(\d+) -> +(\d+) : +(\d+) \| *\** \|")
_LAST = re.compile(r" *(overflow|total) : +(\d+)(?: \| *\** \|)?")


class Histogram(NamedTuple):
    """Latencies of one callback since mount.

    bins[i] counts [2**i, 2**(i+1)) ns, bins[0] counts [0, 2) ns.
    """

    total: int
    bins: tuple[int, ...]
    overflow: int

    @classmethod
    def of(cls, durations: list[int]) -> Histogram:
        """Return the histogram of durations in ns."""
        bins = [0] * (BINS + 1)
        for ns in durations:
            bins[min(max(ns.bit_length() - 1, 0), BINS)] += 1
        return cls(len(durations), tuple(bins[:BINS]), bins[BINS])

    def minus(self, before: Histogram) -> Histogram:
        bins = tuple(now - then for now, then in zip(self.bins, before.bins))
        return Histogram(self.total - before.total, bins, self.overflow - before.overflow)


def parse(text: str) -> dict[str, Histogram]:
    """Return callback ("cvmfs_lookup") -> Histogram. Raise ValueError if the text is malformed."""
    histograms = {}
    lines = iter(text.split("Latency distribution of system calls:\n", 1)[1].splitlines())
    for line in lines:
        if line == "Raw Counters:":
            break
        if line not in CALLBACKS:
            continue
        if next(lines).split() != ["nsec", "|", "count", "|", "distribution", "|"]:
            raise ValueError(f"{line}: no table")
        bins = []
        for i in range(BINS):
            found = _BIN.fullmatch(next(lines))
            if not found or [int(found[1]), int(found[2])] != [(1 << i) & ~1, (2 << i) - 1]:
                raise ValueError(f"{line}: no bin {i}")
            bins.append(int(found[3]))
        last = {}
        for name in ("overflow", "total"):
            found = _LAST.fullmatch(next(lines))
            if not found or found[1] != name:
                raise ValueError(f"{line}: no {name}")
            last[name] = int(found[2])
        if last["total"] != sum(bins) + last["overflow"]:
            raise ValueError(f"{line}: the bins do not add up to the total")
        histograms[CALLBACKS[line]] = Histogram(last["total"], tuple(bins), last["overflow"])
    return histograms


def counters(text: str) -> dict[str, int]:
    """Return the section `Raw Counters`: name -> value."""
    rows = text.split("\nName|Value|Description\n", 1)[1].splitlines()
    return {name: int(value) for name, value, _ in (row.split("|", 2) for row in rows)}


class Call(NamedTuple):
    """One call of a callback, with times of the daemon's CLOCK_MONOTONIC in ns; 0: not (yet)
    reached."""

    operation: str  # "lookup"
    unique: int
    entered: int
    delay_begin: int
    delay_end: int
    after_begin: int  # begin and end of a delay after the reply
    after_end: int
    left: int


def calls(text: str) -> list[Call]:
    """Return the calls in the answer to `calls`, in the order in which they were entered."""
    heading, *rows = (line.split() for line in text.splitlines())
    if tuple(heading) != Call._fields:
        raise ValueError(f"no heading: {heading}")
    return [Call(row[0], *map(int, row[1:])) for row in rows]


def difference(after: dict[str, Histogram], before: dict[str, Histogram]) -> dict[str, Histogram]:
    """Return what happened between two answers."""
    return {callback: after[callback].minus(before[callback]) for callback in after}
