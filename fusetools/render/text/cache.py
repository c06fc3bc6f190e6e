"""fusetools cache as text."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools.figures import binary, duration, number, plural, share, size
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing, nothing
from fusetools.render.text.layout import lines, prose, table
from fusetools.results.cache import Cache, Transfer

_PAGE = 4096
_NAMES = {
    ("read", True): "read, waited for",
    ("read", False): "read-ahead",
    ("write", True): "write, waited for",
    ("write", False): "writeback",
}


def render(result: Cache) -> str:
    output = [*_calls(result), *_asked(result), *_transfers(result)]
    if not output:
        output = [*nothing(result.facts), ""]
    layers = ("syscall", "request", "daemon")
    return lines([*output, *footer(result.facts), *missing(result.facts.missing, layers)])


def _calls(result: Cache) -> list[str]:
    if not result.calls:
        return []
    rows: list[Sequence[str]] = [("SYSTEM CALL", "CALLS", "NO REQUEST", "ONE", "SEVERAL")]
    for row in result.calls:
        none = "-" if row.none is None else share(row.none, row.calls)
        parts = (share(n, row.calls) for n in (row.one, row.several))
        rows.append((printable(row.syscall), number(row.calls), none, *parts))
    output = table(rows, "<>>>>")
    if any(row.none is None for row in result.calls):
        text = (
            "-: not recorded: a call without a descriptor is known to be on a mount by its "
            "requests only"
        )
        output += prose(text, rest="  ")
    if any(
        row.none is not None and row.none + row.one + row.several < row.calls
        for row in result.calls
    ):
        text = "other calls made requests that they did not wait for, or had not returned"
        output += prose(text, rest="  ")
    return [*output, ""]


def _asked(result: Cache) -> list[str]:
    if not result.asked:
        return []
    head = ("ASKED", "REQUESTS", "DIFFERENT", "AGAIN", "SOONEST", "P50", "1 s SAVES", "60 s")
    rows: list[Sequence[str]] = [head]
    for row in result.asked:
        name = f"{row.operation}, no file" if row.negative else row.operation
        figures = (number(n) for n in (row.requests, row.questions, row.again))
        times = (duration(ns) for ns in (row.soonest_ns, row.p50_ns))
        saved = (share(s.requests, row.requests) for s in row.saved)
        rows.append((name, *figures, *times, *saved))
    text = (
        "again: the answer was known and no caller had changed it; SOONEST and P50: time since "
        "that answer. The timeouts themselves are not recorded: the kernel asks again when one is "
        "over, or when it has dropped the entry."
    )
    return [*table(rows, "<>>>>>>>"), *prose(text, rest="  "), ""]


def _transfers(result: Cache) -> list[str]:
    if not result.transfers:
        return []
    head = ("PAGE CACHE", "REQUESTS", "BYTES", "MEAN", "LARGEST", "IN ORDER", "READ AGAIN")
    rows: list[Sequence[str]] = [head]
    for row in result.transfers:
        mean = row.total_bytes / row.sized if row.sized else None
        again = "" if row.again_bytes is None else share(row.again_bytes, row.total_bytes)
        rows.append(
            (
                _NAMES[row.operation, row.waits],
                number(row.requests),
                size(row.total_bytes),
                size(mean),
                binary(row.largest_bytes),
                share(row.in_order, row.followed),
                again,
            )
        )
    output = table(rows, "<>>>>>>")
    output += [line for row in result.transfers for line in _pages(row)]
    if result.unknown:
        text = f"{plural(result.unknown, 'request')} of an unknown file or place: in no order"
        output += prose(text, rest="  ")
    return [*output, ""]


def _pages(row: Transfer) -> list[str]:
    """Return how many dirty pages a writeback request has."""
    if row.operation != "write" or row.waits or not row.sized:
        return []
    pages = row.total_bytes / _PAGE
    text = f"writeback: {number(round(pages))} dirty pages, {number(pages / row.sized)} a request"
    return prose(text, rest="  ")
