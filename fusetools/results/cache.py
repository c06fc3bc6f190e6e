"""The kernel's caches: what they save, as far as a recording shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fusetools.results.facts import Facts
from fusetools.results.rows import Rows
from fusetools.results.units import Bytes, Ns, Seconds


@dataclass(frozen=True)
class CachedCalls:
    """System calls of one name on the mounts.

    ``none``: number of calls that returned without a request, None if the recording cannot show
    them: only a descriptor tells that such a call is on a mount, a path does not. ``one`` and
    ``several``: calls by the number of requests that they waited for. The others made requests that
    they did not wait for, or had not returned by the recording's end."""

    syscall: str
    calls: int
    none: int | None
    one: int
    several: int
    requests: int


class Saved(NamedTuple):
    """Number of ``requests`` that a timeout of so many seconds would have saved."""

    timeout_seconds: Seconds
    requests: int


@dataclass(frozen=True)
class AskedAgain:
    """Requests whose answer the kernel may keep for a time.

    ``negative``: those that found no file. ``questions``: number of different names, files or
    attributes. ``again``: number of requests whose answer was known already, and nothing had
    changed since; ``soonest_ns``, ``p50_ns`` and ``p99_ns``: time since that answer. ``saved``:
    what timeouts would have saved."""

    operation: str
    negative: bool
    requests: int
    total_ns: Ns
    questions: int
    again: int
    soonest_ns: Ns | None
    p50_ns: Ns | None
    p99_ns: Ns | None
    saved: tuple[Saved, ...]


@dataclass(frozen=True)
class Transfer:
    """Requests that read or write, either those that a caller waited for (``waits``) or those in
    the background: read-ahead, and writeback of dirty pages.

    ``sized``: number of requests of known size; ``largest_bytes``: the largest one's;
    ``total_bytes``: bytes that they transferred (of a read: its answer's, or the requested ones if
    the answer's length was not recorded).
    ``followed``: number of requests with one before them in the same file, ``in_order`` of those
    that begin where it ends. ``again_bytes``: bytes that had been read before and not been changed
    since; None for writes."""

    operation: str
    waits: bool
    requests: int
    sized: int
    total_bytes: Bytes
    largest_bytes: Bytes
    followed: int
    in_order: int
    again_bytes: Bytes | None


@dataclass(frozen=True, repr=False)
class Cache(Rows):
    """The kernel's caches: calls by decreasing number, questions by decreasing time.

    ``unknown``: number of transfers of an unknown file or place, which are in no order."""

    calls: tuple[CachedCalls, ...]
    asked: tuple[AskedAgain, ...]
    transfers: tuple[Transfer, ...]
    unknown: int
    facts: Facts

    ROWS = "calls"
    JSON_HIDDEN = ("facts",)
