"""fusetools slow as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fusetools.figures import duration, number, plural
from fusetools.printable import printable
from fusetools.render.text import words
from fusetools.render.text.footer import footer, missing, nothing
from fusetools.render.text.layout import cut, entry, limit, lines, prose, width, wrapped
from fusetools.render.text.words import (
    IN_REQUEST,
    OUTSIDE,
    PARTS,
    REASONS,
    data_amount,
    short,
    unsplit,
)
from fusetools.results.request import Helper, Request
from fusetools.results.slow import SlowCall, Slowest

_NUMBERS = 5  # of requests that are like another


def render(result: Slowest) -> str:
    numbers = [str(r.unique or "") for r in result.requests]
    wide = max(map(len, ["REQUEST", *numbers]))
    output = []
    if result.requests:
        output.append(f"{'DURATION':>9}  {'WHAT':{width() - 13 - wide}}  {'REQUEST':>{wide}}")
    for first, *more in result.alike():
        output += [*_slow(first, wide, len(result.facts.mounts) > 1), *_alike(more)]
    output += _calls(result.alike_calls())
    output += [*([""] if output else nothing(result.facts)), *footer(result.facts)]
    output += names_guessed(result.guessed, result.requests)
    if result.pathless:
        whose = plural(result.pathless, "request")
        output.append(f"{whose} skipped: path unknown or incomplete")
    return lines([*output, *missing(result.facts.missing, ("syscall", "request", "daemon"))])


def _calls(groups: Iterable[Sequence[SlowCall]]) -> list[str]:
    """Return the system calls with the most time outside of requests."""
    output = []
    for call, *more in groups:
        mount = "" if call.mount is None else f" on {printable(str(call.mount))}"
        output.append(f"{duration(_outside(call)):>9}  of {call.syscall}{mount}")
        length = ("" if call.returned else ">") + duration(call.duration_ns)
        by = f"{printable(call.comm)} {call.tid}".strip()
        parts = [f"at {call.start_ns / 1e9:.6f} s", by, f"{length} in all"]
        rows = sorted(call.outside_ns.items(), key=lambda row: -row[1])
        kinds = [f"{OUTSIDE[name]} {duration(ns)}" for name, ns in rows]
        output += [*wrapped(parts, " " * 11), *wrapped(kinds, " " * 11)]
        if more:
            output.append(" " * 11 + alike([_outside(one) for one in more]))
    return ["", "  OUTSIDE  of requests, in system calls", *output] if output else []


def _outside(call: SlowCall) -> int:
    return sum(call.outside_ns.values())


def names_guessed(guessed: bool, requests: Iterable[Request]) -> list[str]:
    note = words.names_guessed(guessed, requests)
    return prose(note) if note else []


def alike(times: Sequence[int]) -> str:
    """Return how many are like the one above, and how long they took, in ns."""
    span = " to ".join(dict.fromkeys(map(duration, (min(times), max(times)))))
    return f"and {number(len(times))} alike, {span}"


def _alike(requests: Sequence[Request]) -> list[str]:
    """Return what `alike` says, and the requests' numbers for `show`."""
    if not requests:
        return []
    numbers = [str(r.unique) for r in requests if r.unique]
    some = [*numbers[:_NUMBERS], *["…"] * (len(numbers) > _NUMBERS)]
    what = "requests" if len(numbers) > 1 else "request"
    named = f": {what} {', '.join(some)}" if some else ""
    return wrapped([alike([r.duration_ns for r in requests]) + named], " " * 11)


def _slow(r: Request, wide: int, several: bool) -> list[str]:
    room = width() - 13 - wide
    unique = "" if r.unique is None else str(r.unique)
    name = what(r, room if limit() else None)
    output = [entry(f"{duration(r.duration_ns):>9}  {name:{room}}  {unique:>{wide}}".rstrip())]
    for parts in details(r, several):
        output += wrapped(parts, " " * 11)
    return output


def details(r: Request, several: bool = False) -> list[list[str]]:
    """Return a request's start and caller, its stages, and the daemon's system calls for it; its
    mount, too, where there are ``several``."""
    by = f"{printable(r.comm)} {r.tid}".strip() if r.tid is not None else "caller not known"
    where = f" in {printable(r.syscall)}" if r.syscall else ""
    calls = [_called(*call) for call in r.meanwhile.syscalls] if r.meanwhile else []
    asleep = unsplit(r.meanwhile.unsplit_ns) if r.meanwhile and r.meanwhile.blocked_ns else []
    if calls:
        began = f" ({printable(r.start_function)})" if r.start_function else ""
        thread = f"thread {r.daemon_tid}{began}"
        calls[0] = f"the daemon's {thread} called {calls[0]}"
        calls += _connected(r.meanwhile.peers) if r.meanwhile and r.meanwhile.peers else []
        calls += _on(r.meanwhile.files) if r.meanwhile else []
    host = f"on {printable(r.host)}" if r.host else ""
    mount = f"on {printable(str(r.mount))}" if several and r.mount else ""
    about = [
        host,
        mount,
        f"at {r.start_ns / 1e9:.6f} s",
        by + where,
        amount(r),
        outcome(r),
        signalled(r),
    ]
    helpers = r.meanwhile.helpers if r.meanwhile else ()
    return [
        [part for part in about if part],
        list(stages_of(r)),
        _handed(r),
        asleep,
        calls,
        *(_helper(helper) for helper in helpers),
    ]


def _handed(r: Request) -> list[str]:
    """Return the known threads of a request that another thread than its reader handled."""
    if not r.handed:
        return []
    threads = [f"the daemon's thread {r.reader} read it"] if r.reader is not None else []
    if r.replier is not None:
        threads.append(f"thread {r.replier} answered it")
    return [*threads, "which threads worked on it is not known"]


def _helper(h: Helper) -> list[str]:
    """Return the system calls of a helper while the request's thread waited for it."""
    calls = [_called(*call) for call in h.syscalls[:4]]
    times = (("ran", h.on_cpu_ns), ("waited for CPU", h.runnable_ns), ("slept", h.blocked_ns))
    did = ", ".join(f"{name} {duration(ns)}" for name, ns in times if ns)
    notes = ": ".join(filter(None, (printable(h.start_function), did)))
    thread = f"thread {h.tid} ({notes})" if notes else f"thread {h.tid}"
    head = f"it waited {duration(h.waited_ns)} for {thread}, which called {calls[0]}"
    return [head, *calls[1:], *_connected(h.peers), *_on(h.files)]


def _on(files: tuple[str, ...]) -> list[str]:
    names = " and ".join(map(printable, files[:3]))
    return [f"files: {names}"] if names else []


def _connected(peers: tuple[str, ...] | None) -> list[str]:
    to = "a peer that is not known" if peers is None else " and ".join(peers[:3])
    return [f"connected to {to}"] if to else []


def what(r: Request, room: int | None) -> str:
    """Return the operation and the file; of a path that is longer than ``room`` only the end."""
    if r.path is None:
        file = f"inode {r.inode}" if r.inode is not None else ""
    elif r.whole:
        file = f"/{r.path}"
    else:
        file = f"…/{r.path}"
    file = printable(file)
    if r.operation in ("getxattr", "setxattr", "removexattr") and r.name:
        file += f" {printable(r.name)}"
    if room is not None:
        file = cut(file, room - len(r.operation) - 1, keep_end=True)
    return f"{r.operation} {file}".rstrip()


def amount(r: Request) -> str:
    error = bool(r.error)
    return data_amount(r.operation, r.answered_bytes, r.size_bytes, r.offset_bytes, error)


def outcome(r: Request) -> str:
    if r.fate in ("unfinished", "interrupted", "aborted"):
        error = f" ({r.error})" if r.error else ""
        by = f" {words.aborted(*r.aborter)}" if r.aborter else ""
        return f"{REASONS[r.fate]}{error}{by}{_where(r)}"
    if r.fate != "matched":
        return REASONS.get(r.fate, r.fate)
    sent = [_resent(r)] if r.resent else []
    return ", ".join([*sent, r.error or ("no such file" if r.negative else "")]).rstrip(", ")


def _resent(r: Request) -> str:
    """Return that it was sent twice, and which process kept it for how long before."""
    again = r.marks_ns.get("read")
    if r.first_reader is None or r.first_read_ns is None or again is None:
        return "sent a second time"
    kept = duration(again - r.first_read_ns)
    return f"sent a second time, {kept} after pid {r.first_reader} had read it"


def signalled(r: Request) -> str:
    """Return the signals that the caller got while it waited."""
    if not r.signals:
        return ""
    read = "the daemon read an INTERRUPT" if r.interrupted else "no INTERRUPT was seen read"
    return f"{plural(r.signals, 'signal')} ({r.signal}) while waiting: {read}"


def _where(r: Request) -> str:
    """Return where an unanswered request stayed: its last known place."""
    if r.refused:
        waits = ", its caller still waits" if r.fate == "unfinished" and r.waits else ""
        return f", answer refused ({r.refused}){waits}"
    if r.dropped:
        return f", its thread {r.reader} went on to other requests"
    last = r.stages[-1][0] if r.stages else ""
    where = {"queue": ", in the queue"}.get(last, "")
    return where or (", with the daemon" if "read" in r.marks_ns else "")


def stages_of(r: Request, whole: bool = False) -> Iterator[str]:
    """Yield the stages from queue to reply; ``whole``: also the system call's stages around it."""
    for (name, ns), parts in zip(r.stages, r.parts_ns):
        # Outside the request itself, show only significant stages.
        matters = parts.get("runnable") or 10 * ns >= r.duration_ns
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
