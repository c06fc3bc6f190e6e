"""fusetools queue as text."""

from __future__ import annotations

from fusetools.figures import number, plural, share
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing, ways_out
from fusetools.render.text.layout import lines, prose, sparkline, table
from fusetools.results.queue import MountQueue, Queue

# Minimum share of the requests' time in the queue with all threads busy, for "short of threads".
# With one thread and one caller, up to 0.14 was measured: a thread's work after its reply,
# including the probes.
SHORT = 0.25


AT_TIMES = 0.05  # minimum share for "at times"


def render(result: Queue) -> str:
    output: list[str] = []
    for m in result.mounts:
        output += [*_mount(m), ""]
    if not output:
        output = ["no requests", ""]
    return lines([*output, *footer(result.facts), *missing(result.facts.missing, ("request",))])


def _mount(m: MountQueue) -> list[str]:
    whole = m.whole
    served = plural(m.requests, "request")
    if m.unanswered:
        served += f", {number(m.unanswered)} without an answer"
    if not m.parts:
        return [f"{printable(m.mount)}: {served}", "", *verdict(m)]
    served += f", read by {plural(m.threads, 'thread')}" if m.handed else ""
    served += "" if m.handed else f", served by {plural(m.threads, 'thread')}"
    working = "requests with the daemon" if m.handed else "threads at work"
    rows = [
        ("", "mean", "max"),
        ("requests in the queue", number(whole.mean_queued), number(whole.most_queued)),
        (working, number(whole.mean_busy), number(whole.most_busy)),
    ]
    output = [f"{printable(m.mount)}: {served}", *table(rows, "<>>", "  ")]
    begin, end = (f"{ns / 1e9:.3f} s" for ns in (m.start_ns, m.end_ns))
    queued = [part.mean_queued for part in m.parts]
    busy = [part.mean_busy for part in m.parts]
    output += [
        "",
        f"  {'queue':8} {sparkline(queued, max(queued, default=0))}".rstrip(),
        f"  {'daemon' if m.handed else 'threads':8} "
        f"{sparkline(busy, whole.most_busy if m.handed else m.threads)}".rstrip(),
        f"  {'':8} {begin}{end:>{max(len(m.parts) - len(begin), 0)}}",
    ]
    return [*output, "", *verdict(m)]


def verdict(m: MountQueue) -> list[str]:
    """Return in words whether the daemon is short of threads or of CPU."""
    output = []
    if m.unread:
        output += prose(
            f"Of {plural(m.unread, 'request')} it is not known when the daemon read them: they "
            "are not in these figures.",
        )
    if m.share_runnable >= AT_TIMES:
        lacking = share(m.runnable_ns, m.total_ns)
        output += prose(
            f"The daemon is short of CPU: for {lacking} of the requests' time the thread that had "
            "them was ready to run and had no CPU.",
        )
    return output + _threads(m)


def _threads(m: MountQueue) -> list[str]:
    if m.handed or not m.threads or not m.total_ns:
        why = (
            f"{number(m.handed)} of {plural(m.requests, 'request')} were answered by another "
            "thread than the one that read them"
            if m.handed
            else "no request's read was seen"
        )
        if m.unanswered == m.requests:
            why = "it answered no request"
        waited = share(m.waited_ns, m.total_ns)
        queued = f" Requests waited in its queue for {waited} of their time." if m.total_ns else ""
        return prose(f"Whether the daemon has enough threads cannot be known: {why}.{queued}")
    waited = share(m.waited_ns, m.total_ns) or "0 %"
    short = share(m.short_ns, m.total_ns) or "0 %"
    threads = "its only thread was" if m.threads == 1 else f"all {number(m.threads)} threads were"
    if m.by_ring:
        threads = "the thread of their ring was"
    waits = f"requests waited in its queue for {short} of their time while {threads} at work."
    if m.share_short >= SHORT:
        text = prose(f"The daemon is short of threads: {waits}")
        more = "give it more threads (libfuse 3.12 and later: -o max_threads=N)"
        if m.by_ring:
            more = "mount it without io_uring: by a ring, each CPU's requests have one thread"
        return [*text, *ways_out(more, "  ")]
    if m.share_short >= AT_TIMES:
        return prose(f"The daemon is short of threads at times: {waits}")
    enough = f"requests waited in its queue for {waited} of their time, but for {short} while"
    if m.unanswered:
        return prose(
            f"Whether the daemon has enough threads cannot be known: of "
            f"{plural(m.requests, 'request')} {number(m.unanswered)} had no answer. Requests "
            f"waited in its queue for {waited} of their time.",
        )
    return prose(f"The daemon has enough threads: {enough} {threads} at work.")
