"""fusetools queue as text."""

from __future__ import annotations

from statistics import fmean

from fusetools.figures import number, plural
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing, nothing, ways_out
from fusetools.render.text.layout import lines, prose, sparkline, table, width
from fusetools.results.queue import MountQueue, Queue

_LABEL = 11  # columns before a line of the picture


def render(result: Queue) -> str:
    output: list[str] = []
    for m in result.mounts:
        output += [*_mount(m), ""]
    if not output:
        output = [*nothing(result.facts), ""]
    return lines([*output, *footer(result.facts), *missing(result.facts.missing, ("request",))])


def _mount(m: MountQueue) -> list[str]:
    whole = m.whole
    served = plural(m.requests, "request")
    if m.unanswered:
        served += f", {number(m.unanswered)} without an answer"
    if not m.parts:
        return [f"{printable(m.mount)}: {served}", *verdict(m)]
    served += f", read by {plural(m.threads, 'thread')}" if m.handed else ""
    served += "" if m.handed else f", served by {plural(m.threads, 'thread')}"
    working = "requests with the daemon" if m.handed else "threads at work"
    rows = [
        ("", "mean", "max"),
        ("requests in the queue", number(whole.mean_queued), number(whole.most_queued)),
        (working, number(whole.mean_busy), number(whole.most_busy)),
    ]
    output = [f"{printable(m.mount)}: {served}", *verdict(m), "", *table(rows, "<>>", "  ")]
    begin, end = (f"{ns / 1e9:.3f} s" for ns in (m.start_ns, m.end_ns))
    queued = [part.mean_queued for part in m.parts]
    busy = [part.mean_busy for part in m.parts]
    # Neighbours share a column on a narrow terminal.
    each = -(-len(m.parts) // (width() - _LABEL))
    queued, busy = (
        [fmean(v[i : i + each]) for i in range(0, len(v), each)] for v in (queued, busy)
    )
    output += [
        "",
        f"  {'queue':8} {sparkline(queued, max(queued, default=0))}".rstrip(),
        f"  {'daemon' if m.handed else 'threads':8} "
        f"{sparkline(busy, whole.most_busy if m.handed else m.threads)}".rstrip(),
        f"  {'':8} {begin}{end:>{max(len(queued) - len(begin), 0)}}",
    ]
    return output


def verdict(m: MountQueue) -> list[str]:
    """Return in words whether the daemon is short of threads or of CPU."""
    output = []
    for reason in m.verdict:
        output += prose(reason.text) + (ways_out(reason.fix, "  ") if reason.fix else [])
    return output
