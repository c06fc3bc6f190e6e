"""Helpers: threads of the daemon for which a request's thread waited, and their system calls.

A thread that hands work to another one sleeps. The thread that wakes it up did the work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fusetools.answers.catalogue import Probe
from fusetools.answers.requests import Connections, Span, peers
from fusetools.core import native
from fusetools.results.request import Helper, Request, SyscallTime

DEEPEST = 4  # maximum length of a chain of waiting threads


SHARE = 0.5  # a helper's wait counts if it lasts at least this share of the wait for the helper


# TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ, include/linux/trace_events.h
INTERRUPT = 8 | 16


Moments = Sequence["native.Moment"]


def chains(
    spans: Sequence[Span | None],
    moments: Sequence[Moments],
    gather: Callable[[list[Span | None]], Sequence[Moments]],
    probes: Sequence[Probe],
    connected: Sequence[Connections],
) -> list[tuple[Helper, ...]]:
    """Return the helpers of each span's thread.

    ``moments``: those of the spans; ``gather`` returns those of other spans; both refer to
    ``probes``. ``connected``: the connections of each span's daemon."""
    helpers: list[list[Helper]] = [[] for _ in spans]
    seen = [{span.tid} if span else set() for span in spans]
    now: list[Span | None] = list(spans)
    for depth in range(DEEPEST):
        then: list[Span | None] = [None] * len(now)
        for at, (span, did) in enumerate(zip(now, moments)):
            wait = _longest(span, did, probes) if span else None
            if span is None or wait is None or wait.tid in seen[at]:
                continue
            if depth == 0 or wait.end - wait.start >= SHARE * (span.end - span.start):
                then[at] = wait
                seen[at].add(wait.tid)
        if not any(then):
            break
        # A helper may begin to work before the waiting thread sleeps.
        begun = [
            wait._replace(start=span.start) if wait and span else None
            for wait, span in zip(then, now)
        ]
        now, moments = then, gather(begun)
        for at, (span, did) in enumerate(zip(now, moments)):
            calls = tuple(_calls(span, did, probes)) if span else ()
            # All the daemon's system calls are recorded: a thread without any is another process's.
            if span is None or not calls:
                now[at] = None
                continue
            addresses = peers(span, did, probes, connected[at], calls)
            times = _states(span, did, probes) or (None, None, None)
            helpers[at].append(Helper(span.tid, span.end - span.start, calls, addresses, *times))
    return [tuple(chain) for chain in helpers]


def with_helpers(request: Request, helpers: tuple[Helper, ...]) -> Request:
    """Add helpers to a request."""
    if request.meanwhile is None or not helpers:
        return request
    return replace(request, meanwhile=replace(request.meanwhile, helpers=helpers))


def _longest(span: Span, moments: Moments, probes: Sequence[Probe]) -> Span | None:
    """Return the span's longest wait that another thread ended: (waker, begin, end)."""
    best = None
    asleep = None
    for time, tid, _, kind, values, _ in moments:
        if not span.start <= time <= span.end:
            continue
        role = probes[kind].role if kind >= 0 else ""
        if role == "switch":
            asleep = time if values[0] == span.tid else None
        elif role == "waking" and values[0] == span.tid and asleep is not None:
            # A wake-up from an interrupt is unrelated to the current thread.
            waker = tid if tid > 0 and not (values[1] or 0) & INTERRUPT else None
            if waker and (best is None or time - asleep > best.end - best.start):
                best = Span(waker, asleep, time)
            asleep = None
    return best


def _states(span: Span, moments: Moments, probes: Sequence[Probe]) -> tuple[int, int, int] | None:
    """Return the ns of the span in which its thread ran, was runnable, and slept.

    None: its switches are not recorded, or its state at the begin is unknown."""
    times = {"on_cpu": 0, "runnable": 0, "blocked": 0}
    state, since, switched = "", span.start, False
    for time, tid, _, kind, values, _ in moments:
        if time > span.end:
            break
        role = probes[kind].role if kind >= 0 else ""
        new = state
        if kind == -1 and tid == span.tid:
            out, preempted = values[:2]
            new = "on_cpu" if not out else "runnable" if preempted else "blocked"
            switched = True
        elif role == "switch":
            if values[0] == span.tid:
                new, switched = "blocked" if values[1] else "runnable", True
            elif values[2] == span.tid:
                new, switched = "on_cpu", True
        elif role == "waking" and values[0] == span.tid:
            new = "runnable" if state in ("", "blocked") else state
        elif tid == span.tid and kind >= 0:
            new = "on_cpu"
        if time <= span.start:
            state = new
        elif new != state:
            if not state:
                return None
            times[state] += time - since
            state, since = new, time
    if not state or not switched:
        return None
    times[state] += span.end - since
    return times["on_cpu"], times["runnable"], times["blocked"]


def _calls(span: Span, moments: Moments, probes: Sequence[Probe]) -> Iterator[SyscallTime]:
    """Yield the thread's system calls in the span, longest first: name, number, ns in the span."""
    calls: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def add(name: str, since: int, until: int) -> None:
        if until >= span.start:
            calls[name][0] += 1
            calls[name][1] += until - max(since, span.start)

    entered: tuple[str, int] | None = None
    for time, tid, _, kind, _, syscall in moments:
        if tid != span.tid or kind < 0 or syscall is None:
            continue
        if probes[kind].role == "sys_enter":
            entered = (syscall, time)
            continue
        name, since = entered or (syscall, span.start)
        if name == syscall:
            add(name, since, time)
        entered = None
    if entered is not None:
        add(*entered, span.end)
    rows = (SyscallTime(name, n, ns) for name, (n, ns) in calls.items())
    yield from sorted(rows, key=lambda row: -row[2])
