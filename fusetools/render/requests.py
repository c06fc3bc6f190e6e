"""Single requests as text for a terminal, 80 columns wide where names allow."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from fusetools.model import (
    Errors,
    Helper,
    MountQueue,
    OperationErrors,
    Queue,
    Request,
    Shown,
    Slowest,
)
from fusetools.render.stages import PARTS, REASONS, short, unsplit
from fusetools.render.text import (
    WIDTH,
    duration,
    footer,
    lines,
    missing,
    number,
    plural,
    printable,
    table,
    ways_out,
)

IN_REQUEST = ("queue", "dispatch", "daemon", "reply")  # stages from its begin to its end
_LEVELS = " ▁▂▃▄▅▆▇█"

# Of the requests' time, spent in the queue while all threads were at work. With one thread and one
# caller up to 0.14 was measured: what a thread does after its reply, the probes' own part too.
SHORT = 0.25
AT_TIMES = 0.05


# slow


def slowest(result: Slowest) -> str:
    numbers = [str(r.unique or "") for r in result.requests]
    wide = max(map(len, ["REQUEST", *numbers]))
    said = []
    if result.requests:
        said.append(f"{'DURATION':>9}  {'WHAT':{WIDTH - 13 - wide}}  {'REQUEST':>{wide}}")
    for r in result.requests:
        said += _slow(r, wide)
    said += ["" if said else "no requests", *footer(result.facts)]
    said += _names(result.guessed, result.requests)
    return lines([*said, *missing(result.facts.missing)])


def _names(guessed: bool, requests: Iterable[Request]) -> list[str]:
    if not (guessed and any(r.path for r in requests)):
        return []
    return [
        "names of files are told by what callers asked for next, since the recording does",
        "not hold which inodes lookups were answered with (one made now does)",
    ]


def _slow(r: Request, wide: int) -> list[str]:
    room = WIDTH - 13 - wide
    unique = "" if r.unique is None else str(r.unique)
    said = [f"{duration(r.duration):>9}  {what(r, room):{room}}  {unique:>{wide}}".rstrip()]
    for parts in told(r):
        said += _wrap(parts, " " * 11)
    return said


def told(r: Request) -> list[list[str]]:
    """When and by whom a request was made, its stages, and what the daemon called for it."""
    by = f"{printable(r.comm)} {r.tid}".strip() if r.tid is not None else "caller not known"
    where = f" in {printable(r.syscall)}" if r.syscall else ""
    calls = [_called(*call) for call in r.meanwhile.syscalls] if r.meanwhile else []
    asleep = unsplit(r.meanwhile.unsplit) if r.meanwhile and r.meanwhile.blocked else []
    if calls:
        calls[0] = f"the daemon's thread {r.daemon_tid} called {calls[0]}"
    about = [f"at {r.start / 1e9:.6f} s", by + where, _asked(r), _outcome(r)]
    helpers = r.meanwhile.helpers if r.meanwhile else ()
    return [
        [part for part in about if part],
        list(_stages(r)),
        asleep,
        calls,
        *(_helper(helper) for helper in helpers),
    ]


def _helper(h: Helper) -> list[str]:
    """What another thread did that was waited for."""
    calls = [_called(*call) for call in h.syscalls[:4]]
    head = f"it waited {duration(h.waited)} for thread {h.tid}, which called {calls[0]}"
    to = "a peer that is not known" if h.peers is None else " and ".join(h.peers[:3])
    return [head, *calls[1:], *([f"connected to {to}"] if to else [])]


def what(r: Request, room: int) -> str:
    """The operation and the file; of a path that is too long the end."""
    if r.path is None:
        file = f"inode {r.inode}" if r.inode is not None else ""
    elif r.whole:
        file = f"/{r.path}"
    else:
        file = f"…/{r.path}"
    file = printable(file)
    if r.operation in ("getxattr", "setxattr", "removexattr") and r.name:
        file += f" {printable(r.name)}"
    room -= len(r.operation) + 1
    if len(file) > room:
        file = "…" + file[-room + 1 :]
    return f"{r.operation} {file}".rstrip()


def _asked(r: Request) -> str:
    if r.size is None or r.operation not in ("read", "write", "readdir", "readdirplus"):
        return ""
    got = ""
    if r.answered is not None and r.operation != "write" and not r.error:
        got = f"{number(r.answered)} of "
    return f"{got}{plural(r.size, 'byte')} at {number(r.offset)}"


def _outcome(r: Request) -> str:
    if r.fate in ("unfinished", "interrupted", "aborted"):
        # In which stage it was, where that is known.
        last = r.stages[-1][0] if r.stages else ""
        where = {"queue": ", in the queue"}.get(last, "")
        where = where or (", with the daemon" if "read" in r.marks else "")
        error = f" ({r.error})" if r.error else ""
        return f"{REASONS[r.fate]}{error}{where}"
    if r.fate != "matched":
        return REASONS.get(r.fate, r.fate)
    return r.error or ("no such file" if r.negative else "")


def _stages(r: Request, whole: bool = False) -> Iterator[str]:
    """From queue to reply, or ``whole``: those of the system call around it, too."""
    for (name, ns), parts in zip(r.stages, r.parts):
        # Outside of the request itself only what matters.
        matters = parts.get("runnable") or 10 * ns >= r.duration
        if not whole and name.split("+")[0] not in IN_REQUEST and not matters:
            continue
        inside = ", ".join(
            f"{PARTS[part]} {duration(part_ns)}"
            for part, part_ns in parts.items()
            if part_ns and not (part_ns == ns and part in ("on_cpu", "copy", "wakeup"))
        )
        yield f"{short(name)} {duration(ns)}" + (f" ({inside})" if inside else "")


def _called(name: str, calls: int, ns: int) -> str:
    many = f" {number(calls)} times," if calls > 1 else ""
    return f"{printable(name)}{many} {duration(ns)}"


def _wrap(parts: Iterable[str], indent: str) -> list[str]:
    """Parts with commas between them, broken there alone."""
    whole = ", ".join(re.sub("(?<!,) ", "\xa0", part) for part in parts if part)
    said = textwrap.wrap(
        whole, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )
    return [line.replace("\xa0", " ") for line in said]


# show


def shown(result: Shown) -> str:
    r = result.request
    details = [duration(r.duration), f"mount {printable(r.mount)}" if r.mount else ""]
    details += [f"inode {r.inode}" if r.inode is not None else "", _asked(r), _outcome(r)]
    said = [f"request {r.unique}: {what(r, 60)}", *_wrap(details, "  ")]
    said += [*_wrap(_stages(r, whole=True), "  "), ""]
    times = [duration(moment.time, "us") for moment in result.moments]
    wide = max(map(len, times), default=0)
    left = (WIDTH - wide - 5) // 2
    caller = f"caller {printable(r.comm)} {r.tid}" if r.tid is not None else "caller not known"
    daemon = f"{printable(r.daemon_comm) or 'daemon'} {r.daemon_tid}"
    said.append(f"{'':{wide}}  {caller:{left}} | {daemon}")
    for when, moment in zip(times, result.moments):
        columns = [
            textwrap.wrap(printable(text), left, subsequent_indent="  ") or [""]
            for text in (moment.caller, moment.daemon)
        ]
        for one, other in zip_longest(*columns, fillvalue=""):
            said.append(f"{when:>{wide}}  {one:{left}} | {other}".rstrip())
            when = ""
    return lines([*said, "", *footer(result.facts), *_names(result.guessed, [r])])


# errors


def errors(result: Errors) -> str:
    rows: list[Sequence[str] | str] = [("OPERATION", "REQUESTS", "ANSWERED", "COUNT", "SHARE")]
    plain: list[str] = []
    for o in result.operations:
        counts = list(o.errors)
        counts += [(REASONS[fate], n) for fate, n in o.unanswered]
        if o.negative:
            counts = sorted([*counts, ("no such file", o.negative)], key=lambda e: -e[1])
        if not counts:
            plain.append(f"{o.operation} {number(o.requests)}")
        for i, (name, n) in enumerate(counts):
            every = o.requests + sum(n for _, n in o.unanswered)
            first = (o.operation, number(every)) if i == 0 else ("", "")
            rows.append((*first, name, number(n), share(n, every)))
    said = table(rows, "<><>>") if len(rows) > 1 else []
    if plain:
        said += [""] * bool(said) + _wrap([f"without an error: {plain[0]}", *plain[1:]], "")
    for o in result.operations:
        if o.operation == "lookup" and o.requests:
            said += ["", *lookups(o)]
    if not result.operations:
        said = ["no requests"]
    if result.disconnected:
        calls = [f"{printable(name)} {number(n)}" for name, n in result.disconnected]
        text = "system calls that failed with ENOTCONN, as their mount had no daemon any more"
        said += ["", *_wrap([f"{text}: {calls[0]}", *calls[1:]], "")]
    return lines([*said, "", *footer(result.facts), *missing(result.facts.missing)])


def lookups(o: OperationErrors) -> list[str]:
    """How many found nothing."""
    of_all = f"{number(o.absent)} of {number(o.requests)} ({share(o.absent, o.requests)})"
    if o.negative is None:
        return [
            "negative lookups: not known: this recording lacks lookup replies;",
            f"  answered with ENOENT: {of_all}",
        ]
    return [f"negative lookups: {of_all}"]


def share(n: int, whole: int) -> str:
    return f"{100 * n / whole:.1f} %" if whole else ""


# queue


def queue(result: Queue) -> str:
    said: list[str] = []
    for m in result.mounts:
        said += [*_mount(m), ""]
    if not said:
        said = ["no requests", ""]
    return lines([*said, *footer(result.facts), *missing(result.facts.missing)])


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
    said = [f"{printable(m.mount)}: {served}", *table(rows, "<>>", "  ")]
    begin, end = (f"{ns / 1e9:.3f} s" for ns in (m.start, m.end))
    queued = [part.mean_queued for part in m.parts]
    busy = [part.mean_busy for part in m.parts]
    said += [
        "",
        f"  {'queue':8} {sparkline(queued, max(queued, default=0))}",
        f"  {'daemon' if m.handed else 'threads':8} "
        f"{sparkline(busy, whole.most_busy if m.handed else m.threads)}",
        f"  {'':8} {begin}{end:>{max(len(m.parts) - len(begin), 0)}}",
    ]
    return [*said, "", *verdict(m)]


def sparkline(values: Iterable[float], most: float) -> str:
    """A character for each value; any that is not 0 shows."""
    levels = len(_LEVELS) - 1
    heights = (max(min(round(levels * v / most), levels), 1) if v > 0 < most else 0 for v in values)
    return "".join(_LEVELS[height] for height in heights)


def verdict(m: MountQueue) -> list[str]:
    """Is the daemon short of threads, or of CPU?"""
    said = []
    if m.unread:
        said += textwrap.wrap(
            f"Of {plural(m.unread, 'request')} it is not known when the daemon read them: they "
            "are not in these figures.",
            WIDTH,
        )
    if m.share_runnable >= AT_TIMES:
        lacking = share(m.runnable, m.total)
        said += textwrap.wrap(
            f"The daemon is short of CPU: for {lacking} of the requests' time the thread that had "
            "them was ready to run and had no CPU.",
            WIDTH,
        )
    return said + _threads(m)


def _threads(m: MountQueue) -> list[str]:
    if m.handed or not m.threads or not m.total:
        why = (
            f"{number(m.handed)} of {plural(m.requests, 'request')} were answered by another "
            "thread than the one that read them"
            if m.handed
            else "no request's read was seen"
        )
        if m.unanswered == m.requests:
            why = "it answered no request"
        waited = share(m.waited, m.total)
        queued = f" Requests waited in its queue for {waited} of their time." if m.total else ""
        return textwrap.wrap(
            f"Whether the daemon has enough threads cannot be known: {why}.{queued}", WIDTH
        )
    waited = share(m.waited, m.total) or "0 %"
    short = share(m.short, m.total) or "0 %"
    threads = "its only thread was" if m.threads == 1 else f"all {number(m.threads)} threads were"
    waits = f"requests waited in its queue for {short} of their time while {threads} at work."
    if m.share_short >= SHORT:
        said = textwrap.wrap(f"The daemon is short of threads: {waits}", WIDTH)
        more = "give it more threads (libfuse 3.12 and later: -o max_threads=N)"
        return [*said, *ways_out(more, "  ")]
    if m.share_short >= AT_TIMES:
        return textwrap.wrap(f"The daemon is short of threads at times: {waits}", WIDTH)
    enough = f"requests waited in its queue for {waited} of their time, but for {short} while"
    if m.unanswered:
        return textwrap.wrap(
            f"Whether the daemon has enough threads cannot be known: of "
            f"{plural(m.requests, 'request')} {number(m.unanswered)} had no answer. Requests "
            f"waited in its queue for {waited} of their time.",
            WIDTH,
        )
    return textwrap.wrap(f"The daemon has enough threads: {enough} {threads} at work.", WIDTH)
