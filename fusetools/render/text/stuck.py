"""fusetools stuck as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from fusetools.figures import ago, number, plural
from fusetools.printable import printable
from fusetools.reasons import Code
from fusetools.render.text.footer import ways_out
from fusetools.render.text.layout import Whole, lines, prose, table
from fusetools.results.stuck import Blocked, Stuck, StuckMount, Told

MOST_CALLERS = 10
MOST_CAUSES = 6
MOST_CHAINS = 8
MOST_PLACES = 10
FRAMES = 8


def render(result: Stuck) -> str:
    """Stuck mounts first, each with the cause, its callers and its daemon's threads."""
    return lines(_lines(result))


def _lines(result: Stuck) -> Iterator[str]:
    order = {"stuck": 0, "dead": 1, "unknown": 2, "own": 3, "busy": 4, "quiet": 5}
    for mount in sorted(result.mounts, key=lambda mount: order[mount.state]):
        if mount.state == "stuck":
            yield from _stuck(mount, result)
            yield from _halted(mount)
            yield ""
        elif mount.state == "dead":
            (cause,) = mount.causes
            yield from _prose(f"{_name(mount, result)}: DEAD: {cause.text}", "")
            for command, what in cause.fixes:
                yield from _fix(command, what, "  ")
        else:
            yield from _prose(f"{_name(mount, result)}: {_well(mount, result)}", "")
            if mount.locked:
                yield from _locked(mount)
            if mount.served and mount.state == "busy":
                path = shlex.quote(mount.path or "PATH")
                yield Whole(printable(f"  why: fusetools record --mount {path} -- COMMAND"))
            yield from _halted(mount)
    for mounting in result.mounting:
        yield from _prose(mounting.text, "")
        if len(mounting.chain) > 1:
            for line in mounting.chain[:MOST_CHAINS]:
                yield from _prose(line, "  -> ")
    if not result.mounts and not result.mounting:
        yield "no FUSE file system is mounted here"
    if result.unplaced:
        yield "Threads that wait in FUSE, for which mount cannot be known:"
        yield from _threads(result.unplaced)
    for unknown in result.unknown:
        yield from _prose(f"not known: {unknown.text}", "")
        if unknown.fix:
            yield from ways_out(unknown.fix, "  ")
    if result.silent and not any(unknown.kind == "time" for unknown in result.unknown):
        who = plural(len(result.silent), "process or thread", "processes or threads")
        pids = ", ".join(map(str, result.silent[:8]))
        yield from _prose(
            f"{who} could not be looked at in time "
            f"(they hold a lock of the kernel's, or there was no time left): {pids}",
            "",
        )
    if result.unread:
        count = plural(result.unread, "other mount namespace")
        yield from _prose(f"the mounts of {count} could not be read in time", "")
    for note in result.notes:
        yield from _prose(note, "")


def _name(mount: StuckMount, result: Stuck) -> str:
    where = f", in the mount namespace of pid {mount.namespace_of}" if mount.namespace_of else ""
    where += ", below another mount on this path" if mount.covered else ""
    daemon = f", {mount.comm}, pid {mount.daemon}" if mount.daemon is not None else ""
    if not mount.path:
        where = "its mount point is not known" if result.unread else "mounted nowhere now"
        return f"connection {mount.connection} ({where}{daemon})"
    return f"{mount.path} ({mount.fstype}{daemon}{where})"


def _well(mount: StuckMount, result: Stuck) -> str:
    if mount.state == "quiet":
        if mount.waiting is None:
            return "no caller is seen that waits; its requests cannot be counted"
        return "nothing waits"
    count = plural(mount.waiting, "request") if mount.waiting else "no request"
    if mount.state == "own":
        who = plural(mount.own, "process of fusetools waits", "processes of fusetools wait")
        return f"not stuck: {who}, left behind by a recording or another command; nobody else does"
    if mount.state == "unknown":
        if mount.waiting == 0:
            return "NOT KNOWN: nothing waits, but its daemon was not found in time"
        count = "its requests cannot be counted" if mount.waiting is None else f"{count} in flight"
        if mount.locked and all(unknown.kind == "lock" for unknown in result.unknown):
            who = plural(mount.locked, "caller waits", "callers wait")
            return f"NOT KNOWN: {count}; {who} for a file lock whose holder is not known"
        return f"NOT KNOWN: {count}; not all that may wait could be examined"
    if result.unplaced and mount.waiting != 0:
        return f"{count} in flight; whether a thread named below waits for one cannot be known"
    older = f"{result.older_seconds:g} s"
    if mount.locked:
        who = plural(mount.locked, "caller waits", "callers wait")
        return f"busy, not stuck: {count} in flight; {who} for a file lock that another one holds"
    if mount.served:
        who = plural(mount.served, "caller") + " that had waited"
        longest = ago(max((c.age_seconds for c in mount.callers if c.age_seconds), default=None))
        got = f"{who} for up to {longest} got their answers meanwhile"
        return f"slow, not stuck: {count} in flight; {got}, in turn"
    return f"busy, not stuck: {count} in flight, nobody has waited for {older}"


def _stuck(mount: StuckMount, result: Stuck) -> Iterator[str]:
    oldest = max((c.age_seconds for c in mount.callers if c.age_seconds is not None), default=None)
    parts = []
    if mount.waiting is not None:
        parts.append(f"{plural(mount.waiting, 'request')} in flight")
    if mount.callers:
        longest = f", the oldest for {ago(oldest)}" if oldest is not None else ""
        parts.append(f"{plural(len(mount.callers), 'caller')} blocked{longest}")
    yield from _prose(f"{_name(mount, result)}: STUCK: {', '.join(parts)}", "")
    for place, cause in enumerate(mount.causes[:MOST_CAUSES]):
        yield from _prose(("why: " if not place else "and: ") + cause.text, "  ")
        if cause.reason.fix:
            yield Whole(f"       {printable(cause.reason.fix)}")
        if len(cause.chain) > 1:
            for line in cause.chain[:MOST_CHAINS]:
                yield from _prose(line, "       -> ")
    if len(mount.causes) > MOST_CAUSES:
        more = plural(len(mount.causes) - MOST_CAUSES, "more cause")
        yield f"  and {more} (--json has all)"
    if mount.callers:
        yield ""
        yield from _callers(mount.callers)
    if mount.threads:
        yield ""
        yield from _daemon(mount)
    if mount.client:
        yield ""
        yield "  The client says:"
        for line in client(mount.client):
            yield from _prose(line, "    ")
    fixes = [fix for cause in mount.causes for fix in cause.fixes]
    if fixes:
        yield ""
        yield "  What would end it (nothing of this was run):"
        for command, what in dict.fromkeys(fixes):
            yield Whole(f"    {printable(command)}")
            yield from _prose(what, "        ")


def _locked(mount: StuckMount) -> Iterator[str]:
    waits = [
        c for c in mount.callers if c.wait.code in (Code.WAIT_CALLERS_LOCK, Code.WAIT_FILE_LOCK)
    ]
    for c in waits[:MOST_CALLERS]:
        who = f"{c.comm} (pid {c.pid})" if c.pid == c.tid else f"{c.comm} (thread {c.tid})"
        yield from _prose(f"{who} {c.waits}, for {ago(c.age_seconds)}", "  ")
    if len(waits) > MOST_CALLERS:
        yield f"  and {number(len(waits) - MOST_CALLERS)} more callers (--json has all)"


def _halted(mount: StuckMount) -> Iterator[str]:
    for cause in mount.halted[:MOST_CALLERS]:
        yield from _prose(cause.text, "  ")
        for command, effect in cause.fixes:
            yield from _fix(command, effect, "    ")
    if len(mount.halted) > MOST_CALLERS:
        yield f"  and {number(len(mount.halted) - MOST_CALLERS)} more that are halted (--json)"


def _fix(command: str, effect: str, indent: str) -> Iterator[str]:
    """Yield a command on a line of its own, which users copy, and its effect."""
    yield from ways_out(command, indent)
    yield from _prose(f"({effect})", f"{indent}     ")


def client(told: Iterable[Told]) -> list[str]:
    """Return the lines of a CernVM-FS client's own status."""
    return [line.strip() for _, text in told for line in text.splitlines()]


def _callers(callers: tuple[Blocked, ...]) -> Iterator[str]:
    rows = [("blocked for", "pid", "user", "command", "call", "path")]
    rows += [
        (
            ago(c.age_seconds),
            str(c.pid) if c.pid == c.tid else f"{c.pid}/{c.tid}",
            c.user,
            c.comm + (" (killed)" if c.killed else ""),
            c.call or ("page fault" if any("fault" in name for name in c.stack) else "-"),
            c.path or ("(a file that it closes)" if c.call == "exit" else "(unknown)"),
        )
        for c in callers[:MOST_CALLERS]
    ]
    yield from table(rows, ">><<<<", "  ")
    if len(callers) > MOST_CALLERS:
        yield f"  and {number(len(callers) - MOST_CALLERS)} more callers (--json has all)"


def _daemon(mount: StuckMount) -> Iterator[str]:
    many = len(mount.servers) > 1
    pids = f"pids {', '.join(map(str, mount.servers))}" if many else f"pid {mount.daemon}"
    yield from _prose(f"{mount.comm} ({pids}), {plural(len(mount.threads), 'thread')}:", "  ")
    # Those that do not answer with each place where they wait, the others by what for.
    known = {thread.tid: thread for thread in mount.threads}
    guilty = [known.pop(tid) for cause in mount.causes for tid in cause.threads if tid in known]
    yield from _threads(guilty, FRAMES)
    yield from _threads(known.values())


def _threads(threads: Iterable[Blocked], frames: int = 0) -> Iterator[str]:
    """Yield one line for all that wait for the same, most first; with ``frames``, for all that also
    share these innermost frames, in their order."""
    alike: dict[tuple[object, ...], list[Blocked]] = {}
    for thread in threads:
        place = (thread.wait, thread.start_function, *thread.user_stack[:frames])
        alike.setdefault(place, []).append(thread)
    ranked = list(alike.values()) if frames else sorted(alike.values(), key=len, reverse=True)
    for thread, *rest in ranked[:MOST_PLACES]:
        waits, count = thread.waits, 1 + len(rest)
        who = f"thread {thread.tid}" if count == 1 else plural(count, "thread")
        who += f" ({thread.start_function})" if thread.start_function else ""
        verb = waits if count == 1 else _many(waits)
        age = f", for {ago(thread.age_seconds)}" if count == 1 and thread.age_seconds else ""
        yield from _prose(f"{who} {verb}{age}", "    ")
        if thread.user_stack:
            yield from _prose("in " + " < ".join(thread.user_stack[:FRAMES]), "      ")
    if len(ranked) > MOST_PLACES:
        more = sum(map(len, ranked[MOST_PLACES:]))
        yield f"    and {plural(more, 'thread')} at other places (--json has all)"


def _many(waits: str) -> str:
    verb, _, rest = waits.partition(" ")
    plain = {"is": "are", "has": "have"}.get(verb, verb[:-1] if verb.endswith("s") else verb)
    rest = rest.replace("its next request", "their next request")
    return f"{plain} {rest}".rstrip()


def _prose(line: str, indent: str) -> list[str]:
    return prose(printable(line), indent, " " * (len(indent) + 2))
