"""fusetools errors as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusetools.figures import number, plural, share
from fusetools.printable import printable
from fusetools.render.text.footer import footer, missing, nothing
from fusetools.render.text.layout import lines, prose, table, wrapped
from fusetools.render.text.words import REASONS, aborted
from fusetools.results.errors import (
    Answered,
    Dropped,
    Errors,
    Interrupts,
    OperationErrors,
    Refused,
)


def render(result: Errors) -> str:
    rows: list[Sequence[str] | str] = [("OPERATION", "REQUESTS", "ANSWERED", "COUNT", "SHARE")]
    plain: list[str] = []
    for o in result.operations:
        counts = list(o.errors)
        counts += [Answered(REASONS[fate], n) for fate, n in o.unanswered]
        if o.negative:
            counts = sorted([*counts, Answered("no such file", o.negative)], key=lambda e: -e[1])
        if not counts:
            plain.append(f"{o.operation} {number(o.requests)}")
        for i, (name, n) in enumerate(counts):
            every = o.requests + sum(n for _, n in o.unanswered)
            first = (o.operation, number(every)) if i == 0 else ("", "")
            rows.append((*first, name, number(n), share(n, every)))
    output = table(rows, "<><>>") if len(rows) > 1 else []
    if plain:
        output += [""] * bool(output) + wrapped([f"without an error: {plain[0]}", *plain[1:]], "")
    for o in result.operations:
        if o.operation == "lookup" and o.requests:
            output += ["", *lookups(o)]
    if not result.operations:
        output = nothing(result.facts)
    notes = [*unanswered(result), *contradicted(result), *interrupts(result.interrupts)]
    output += [""] * bool(notes) + [line for note in notes for line in prose(note, rest="  ")]
    if result.disconnected:
        calls = [f"{printable(name)} {number(n)}" for name, n in result.disconnected]
        text = "system calls that failed with ENOTCONN, as their mount's connection was gone"
        output += ["", *wrapped([f"{text}: {calls[0]}", *calls[1:]], "")]
    return lines([*output, "", *footer(result.facts), *missing(result.facts.missing, ("request",))])


def lookups(o: OperationErrors) -> list[str]:
    """Return the number of negative lookups."""
    of_all = f"{number(o.absent)} of {number(o.requests)} ({share(o.absent, o.requests)})"
    if o.negative is None:
        return [
            "negative lookups: not known: this recording lacks lookup replies;",
            f"  answered with ENOENT: {of_all}",
        ]
    return [f"negative lookups: {of_all}"]


def unanswered(result: Errors) -> list[str]:
    """Return why requests had no answer: refused answers, dropped requests, who aborted."""
    notes = []
    for r in result.refused:
        whose = f"of {r.operation} refused by the kernel ({r.error})"
        notes.append(f"{_numbered('answer to', r)} {whose}; {_callers(r)}")
    for d in result.dropped:
        which = _numbered("", d).strip()
        notes.append(
            f"{which} of {d.operation} read by the daemon and never answered: its thread went on "
            f"to other requests; {_callers(d)}"
        )
    for a in result.aborted:
        notes.append(f"{plural(a.requests, 'request')} aborted {aborted(a.by, a.comm, a.pid)}")
    return notes


def _numbered(what: str, rows: Refused | Dropped) -> str:
    """Return e.g. "answer to request 8", "answers to 17 requests (8, 12, 20 …)"."""
    numbers = ", ".join(map(str, rows.numbers))
    if rows.requests == 1:
        return f"{what} request {numbers}"
    more = " …" if len(rows.numbers) < rows.requests else ""
    plurals = what.replace("answer", "answers")
    return f"{plurals} {plural(rows.requests, 'request')} ({numbers}{more})"


def _callers(rows: Refused | Dropped) -> str:
    if not rows.waiting:
        return "no caller waits any more"
    if rows.requests == 1:
        return "its caller still waits"
    return f"{plural(rows.waiting, 'caller')} still {'waits' if rows.waiting == 1 else 'wait'}"


def contradicted(result: Errors) -> list[str]:
    """Return the system calls whose error no answer contains."""
    notes = []
    for c in result.contradicted:
        calls = f"{printable(c.syscall)} failed with {c.error} {plural(c.calls, 'time')}"
        why = "the kernel itself refused the call"
        if c.earlier:
            why = "requests in the background, such as writes, had been answered with it before"
        elif c.error == "EIO":
            why = "the kernel refused what the answer contained (attributes, size, type, node)"
        notes.append(f"{calls} though {c.operation} was answered without an error: {why}")
    return notes


def interrupts(rows: Iterable[Interrupts]) -> list[str]:
    """Return the operations whose callers got signals, and what the daemon did about it."""
    notes = []
    for i in rows:
        who = f"{plural(i.requests, i.operation)} of {printable(i.comm) or 'a caller'}"
        notes.append(
            f"{who} got {plural(i.signals, 'signal')} ({i.signal}) while waiting: the daemon read "
            f"{plural(i.read, 'INTERRUPT')} and answered {number(i.obeyed)} with EINTR"
        )
    return notes
