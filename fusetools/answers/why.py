"""Findings: where the time goes that callers waited, and why.

The core divides each request's time among causes (native/core/src/answers/why.rs). The rules here
join causes to findings and compare them with thresholds (configs/rules). A finding takes its time
from the causes: the next one gets none of it.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Union

from fusetools import core
from fusetools.answers.filters import Filters
from fusetools.answers.fixes import advice
from fusetools.answers.frames import kind_of
from fusetools.answers.queue import more_threads
from fusetools.answers.requests import RequestQuery, error_name
from fusetools.answers.rules import threshold
from fusetools.answers.source import Source
from fusetools.figures import ending, signal_name
from fusetools.host.limits import change, device, unlimited
from fusetools.names import given
from fusetools.reasons import Code, Reason, Value
from fusetools.results.facts import Facts
from fusetools.results.why import MOST, Caller, Finding, Usual, Why
from fusetools.session import File, TracedMount
from fusetools.starts import says_nothing, start_of_frames

# Causes that every request has.
_ORDINARY = ("caller", "caller_blocked", "passing", "on_cpu")
_DIRECTORIES = frozenset(
    [
        "lookup",
        "opendir",
        "readdir",
        "readdirplus",
        "create",
        "mkdir",
        "mknod",
        "unlink",
        "rmdir",
        "rename",
        "rename2",
        "symlink",
        "releasedir",
        "fsyncdir",
    ]
)
# Answers that programs expect: no such file or attribute, an operation that is not supported.
_EXPECTED = (
    *(errno.ENOENT, errno.ENODATA, errno.ENOSYS, errno.EOPNOTSUPP, errno.ERANGE, errno.EEXIST),
)
# Errors by which a call that may not wait says that it would
_WOULD_WAIT = {"EAGAIN": ("read", "write", "setlk", "setlkw")}
# Answers that a file has no such attribute. ENOSYS says it of all files: the kernel then asks no
# more (fs/fuse/xattr.c, no_getxattr and no_listxattr).
_NO_ATTRIBUTE = (errno.ENODATA, errno.EOPNOTSUPP)
_ATTRIBUTES = ("getxattr", "listxattr")
_ASKED = ("again", "needed")  # classes of questions
# Changes that save requests; configs/fixes has those of caches. The first one lets the kernel
# remember that a file has no security.capability: SB_NOSEC (fs/fuse/inode.c).
_KILLPRIV = "let the daemon remove capabilities: FUSE_HANDLE_KILLPRIV_V2 (Linux 5.11)"
_LARGER = {
    "read": "read larger blocks, or through the page cache (without O_DIRECT and direct_io)",
    "write": "write larger blocks, or through a writeback cache (without O_DIRECT, O_SYNC and "
    "direct_io)",
}
_FEW = 3  # names and callers in a sentence
_LEAST_CALLER = 0.001  # share of a finding's time below which a caller is not named
_WHOLE = 0.9  # share of a finding's time that must be in the place that it names


def why(source: Source, filters: Filters) -> Why:
    """Return the findings of a recording."""
    digest = _digest(source, filters)
    facts = digest.facts
    found = sorted(_findings(digest), key=lambda f: (_rank(f), -f.time_ns, f.reason.code.value))
    usual = digest.usual()  # without what findings took
    return Why(
        findings=tuple(found[:MOST]),
        requests=digest.requests,
        waited_ns=digest.total,
        longest_ns=digest.longest_ns,
        ordinary_share=digest.share(sum(row.time_ns for row in usual)),
        unknown_share=digest.share(_unexplained(digest, found)),
        usual=tuple(row for row in usual[:_FEW] if row.share >= threshold("all", "least_share")),
        looked=tuple(code.value for codes, _ in RULES for code in codes),
        unknown=tuple(_unknown(digest, found)),
        facts=facts,
    )


def _rank(finding: Finding) -> int:
    """Sort what is about the recording itself behind what is about the mount, and a mount that is
    gone before all."""
    code = finding.reason.code
    return (code == Code.RECORDING_DISTURBS) - (code in (Code.DISCONNECTED, Code.DAEMON_ENDED))


def _findings(digest: Digest) -> Iterator[Finding]:
    for _, rule in RULES:
        yield from rule(digest) if digest.total or rule in _WITHOUT_REQUESTS else ()


def _unexplained(digest: Digest, found: Iterable[Finding]) -> int:
    """Return the time of unknown cause, without that of requests that got no answer."""
    unanswered = (f.time_ns for f in found if f.reason.code == Code.UNANSWERED)
    return digest.unknown - sum(unanswered)


def _unknown(digest: Digest, found: Iterable[Finding]) -> Iterator[Reason]:
    """Yield what this recording cannot show of causes."""
    source = digest.source
    if source.detail == "latency":
        again = source.with_detail("stages")
        yield Reason(Code.WHY_NO_STATES, {"detail": source.detail}, {}, again)
    elif source.detail == "stages":
        again = source.with_detail("stacks")
        yield Reason(Code.WHY_NO_FUNCTIONS, {"detail": source.detail}, {}, again)
    share = digest.share(_unexplained(digest, found))
    if source.detail != "latency" and share >= threshold("all", "least_share"):
        yield Reason(Code.WHY_UNKNOWN, {}, {"time_share": share})


@dataclass(frozen=True)
class Place:
    """Operation and file or directory that has most of a finding's time."""

    operation: str
    path: str
    kind: str  # "file", "directory", "mount" or ""
    requests: int
    of: int
    ns: int
    # Other operations with a tenth of the time or more
    others: tuple[str, ...] = ()

    @property
    def subject(self) -> dict[str, Value]:
        return {
            "operation": self.operation,
            "path": self.path,
            "place": self.kind,
            "others": self.others,
        }

    @property
    def figures(self) -> dict[str, int | float]:
        each = self.ns // self.requests if self.requests else 0
        return {"requests": self.requests, "of": self.of, "mean_ns": each}


@dataclass
class Group:
    """Causes joined to a finding."""

    causes: list[core.native.Cause] = field(default_factory=list)

    @property
    def ns(self) -> int:
        return sum(cause["ns"] for cause in self.causes)

    @property
    def most(self) -> core.native.Cause:
        return max(self.causes, key=lambda cause: cause["ns"])


def _called_by(
    cause: core.native.Cause, pid: int, callers: Sequence[tuple[int, int, int]]
) -> core.native.Cause:
    """Return a cause with the callers of daemon ``pid`` in place of it."""
    its = sum(ns for caller, _, ns in cause["callers"] if caller == pid)
    whole = sum(ns for *_, ns in callers)
    if not its or not whole:
        return cause
    rows = [row for row in cause["callers"] if row[0] != pid]
    rows += [(caller, n, its * ns // whole) for caller, n, ns in callers]
    return {**cause, "callers": rows}


def disk_waits(source: Source, filters: Filters) -> dict[str, dict[str, int]]:
    """Return for how many ns the daemons' threads waited for disks while callers waited for them,
    by operation and place: a file with its mount and device, only the latter, or "" if unknown."""
    digest = _digest(source, filters)
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for cause in digest.answer["causes"]:
        if (cause["what"], cause["how"]) == ("slept", "disk") and not cause["background"]:
            place, _ = digest.files([cause])
            file, disk = place.get("below", ""), place.get("disk", "")
            for operation, ns in cause["operations"]:
                found[operation][f"{file} on {disk}" if file else str(disk)] += ns
    return {operation: dict(places) for operation, places in found.items()}


def _digest(source: Source, filters: Filters) -> Digest:
    query = RequestQuery(source)
    if source.detail == "stacks":
        query.probes = source.with_stacks(source.catalogue.named())
    long = int(threshold(Code.DAEMON_CPU.value, "least_ns_each"))
    answer, facts = query(core.native.why, filters, long)
    return Digest(source, query, answer, source.with_missing_detail(facts), filters)


class Digest:
    """The core's answer, and what the rules ask of it."""

    def __init__(
        self,
        source: Source,
        query: RequestQuery,
        answer: core.native.Why,
        facts: Facts,
        filters: Filters,
    ) -> None:
        self.source, self.query, self.answer, self.facts = source, query, answer, facts
        self.filters = filters
        self.requests, self.total = answer["waited"]
        self.causes = [cause for cause in answer["causes"] if not cause["background"]]
        self.limited: list[core.native.Cause] = []
        self._bring_pages()
        self._bring_requests_below()
        self.seconds = max(facts.seconds, 1e-9)
        self.comms: dict[int, str] = dict(answer["comms"])
        self.operations = dict(answer["operations"])
        self.taken: dict[str, int] = defaultdict(int)
        # Time of needless requests, less the estimated cost of recording.
        ordinary = sum(ns for *_, ns in answer["classes"])
        self.recorded = min(answer["recording"], ordinary)
        self.kept = 1 - self.recorded / ordinary if ordinary else 1.0
        self.hammering: set[int] = set()
        # Time without a CPU that a quota explains, by the kind of its causes.
        self.by_quota: Counter[str] = Counter()

    def _bring_pages(self) -> None:
        """Give waits for pages to the causes of the reads in the background that brought them.

        Waits for pages on a mount that had as many reads in flight as it may have are in
        ``limited``."""
        kinds = ("page", "other", "blocked")
        pages: dict[int | None, list[core.native.Cause]] = defaultdict(list)
        waits = [c for c in self.causes if c["what"] == "outside" and c["how"] in kinds]
        for page in waits:
            mount = self.mount(page)
            background = self.answer["background"]
            flights = [row for row in background if row["connection"] == page["connection"]]
            most = mount.limits.get("max_background", 0) if mount else 0
            if flights and most and flights[0]["mean"] >= _WHOLE * most:
                self.limited.append(page)
                continue
            if page["how"] == "page":
                pages[page["connection"]].append(page)
        for connection, waits in pages.items():
            reads = [
                cause
                for cause in self.answer["causes"]
                if cause["background"] and cause["connection"] == connection
            ]
            whole = sum(cause["ns"] for cause in reads)
            if not whole:
                continue
            part = sum(page["ns"] for page in waits) / whole
            callers = [row for page in waits for row in page["callers"]]
            self.causes = [cause for cause in self.causes if cause not in waits]
            for cause in reads:
                own = cause["ns"] / whole
                brought: core.native.Cause = {
                    **cause,
                    "ns": int(part * cause["ns"]),
                    "part": part,
                    "background": False,
                    "operations": [(op, int(part * ns)) for op, ns in cause["operations"]],
                    "places": [(op, at, n, int(part * ns)) for op, at, n, ns in cause["places"]],
                    "callers": [(pid, n, int(own * ns)) for pid, n, ns in callers],
                }
                self.causes.append(brought)

    def _bring_requests_below(self) -> None:
        """Leave the blame with the lowest mount: a daemon's waits for a FUSE mount below are the
        waits of its requests there. Its requests' callers are those who wait.

        The time counts once, also in ``total``."""
        pids = {m.connection: m.daemon_pid for m in self.source.session.mounts if m.daemon_pid}
        made: dict[int, int] = defaultdict(int)
        for cause in self.causes:
            for pid, _, ns in cause["callers"]:
                made[pid] += ns
        waits = [c for c in self.causes if (c["what"], c["how"]) == ("slept", "fuse")]
        for daemon in {*pids.values()} & {*made}:
            of = [cause for cause in waits if pids.get(cause["connection"]) == daemon]
            whole = sum(cause["ns"] for cause in of)
            below = min(1.0, made[daemon] / whole) if whole else 0.0
            callers = [row for cause in of for row in cause["callers"]]
            for cause in of:
                left = cause["ns"] - int(below * cause["ns"])
                self.total -= cause["ns"] - left
                self.causes.remove(cause)
                self.causes += [{**cause, "ns": left}] if left else []
            self.causes = [_called_by(cause, daemon, callers) for cause in self.causes]

    @cached_property
    def longest_ns(self) -> int:
        """Longest time that a process waited, the sum of its threads' times."""
        waited: dict[int, int] = defaultdict(int)
        for pid, _, ns in self.answer["processes"]:
            waited[pid] += ns
        for cause in self.causes:
            for pid, _, ns in cause["callers"] if cause["what"] == "outside" else ():
                waited[pid] += ns
        return max(waited.values(), default=0)

    def share(self, ns: float) -> float:
        return ns / self.total if self.total else 0.0

    @property
    def unknown(self) -> int:
        """Time whose cause the recording does not show."""
        left = (c for c in self.causes if (c["what"], c["how"]) == ("slept", "idle"))
        return self.ns("unknown") + sum(cause["ns"] for cause in left)

    def take(self, ns: int, rows: Iterable[tuple[str, int]]) -> None:
        """Note that a finding has this much of the usual work of requests: of each operation,
        whose times the rows tell, its part."""
        rows = list(rows)
        whole = sum(part for _, part in rows) or 1
        for operation, part in rows:
            self.taken[operation] += ns * part // whole

    def usual(self) -> list[Usual]:
        """Time that requests take anywhere and that no finding has, by operation, most first."""
        by: Counter[str] = Counter()
        brought: set[str] = set()
        for cause in self.causes:
            own = cause["what"] in ("daemon_cpu", "caller_cpu") and not self.is_taken(cause)
            if own or cause["what"] in _ORDINARY:
                by.update(dict(cause["operations"]))
                if "part" in cause:
                    brought.update(name for name, _ in cause["operations"])
        rows = []
        asynchronous = dict(self.answer["asynchronous"])
        for operation, ns in by.items():
            left = max(ns - self.taken[operation], 0)
            requests = self.operations.get(operation, (0, 0, 0))[0]
            if operation in brought:
                requests += asynchronous.get(operation, (0, 0, 0))[0]
            rows.append(Usual(operation, requests, left, self.share(left)))
        return sorted(rows, key=lambda row: (-row.time_ns, row.operation))

    def ns(self, what: str) -> int:
        return sum(cause["ns"] for cause in self.causes if cause["what"] == what)

    def ns_on(self, what: str, connection: int | None) -> int:
        """Return the time of a kind of causes on one mount."""
        causes = (cause for cause in self.causes if cause["connection"] == connection)
        return sum(cause["ns"] for cause in causes if cause["what"] == what)

    def counts(self, code: Code, ns: float) -> bool:
        """Return whether a cause's time is worth a finding."""
        return (
            self.share(ns) >= threshold(code.value, "least_share")
            and ns >= threshold(code.value, "least_ns")
            and ns >= threshold(code.value, "least_of_recording") * self.seconds * 1e9
        )

    def is_taken(self, cause: core.native.Cause) -> bool:
        """Return whether another thread had the CPU for which a thread was ready.

        Caller and daemon wake each other up, often on one CPU: there one of them runs until it
        sleeps.
        """
        own = {mount.daemon_pid for mount in self.source.session.mounts}
        own |= {pid for pid, *_ in self.answer["processes"]}
        return cause["pid"] is not None and cause["pid"] not in own

    def is_recorders(self, cause: core.native.Cause) -> bool:
        """Return whether the recording's own programs had the CPU for which a thread was ready."""
        of_cpu = cause["what"] in ("daemon_cpu", "caller_cpu")
        return of_cpu and cause["pid"] in self.source.session.recorders

    @cached_property
    def slept(self) -> dict[tuple[object, ...], Group]:
        """Sleeps of the daemon by what they were for."""
        groups: dict[tuple[object, ...], Group] = defaultdict(Group)
        for cause in self.causes:
            # A thread that waits for its next request has left this one.
            if cause["what"] == "slept" and cause["how"] != "idle":
                groups[self._kind(cause)].causes.append(cause)
        return dict(groups)

    def how(self, cause: core.native.Cause) -> str:
        """Return what a sleep was for. A stream is the network where its peer is known."""
        connected = self.query.connections_of(self.daemon_pid(cause))
        streams = ("stream", "poll", "process")
        if cause["how"] in streams and (cause["fd"] in connected or self._only_peer(cause)):
            return "network"
        return cause["how"]

    def _only_peer(self, cause: core.native.Cause) -> bool:
        """Return whether a poll of unknown descriptors can only be for the daemon's only peer."""
        return cause["how"] == "poll" and cause["fd"] is None and bool(self.address(cause))

    def _kind(self, cause: core.native.Cause) -> tuple[object, ...]:
        mount, how = cause["connection"], self.how(cause)
        if cause["lock"] is not None:
            return mount, "lock", cause["lock"]
        if how == "network":
            return mount, how, self.address(cause)
        if how == "process":
            # Many processes of one program are one cause: children that run for each request.
            return mount, how, self.comm(cause["pid"] or 0) or cause["pid"]
        if how in ("disk", "page", "on_cpu", "stopped", "traced", "frozen"):
            return mount, how
        return mount, how, cause["syscall"]

    def worked(self, connection: int | None) -> int:
        """Return the time in which a mount's daemon had requests in hand."""
        states = ("slept", "on_cpu", "computes", "daemon_cpu")
        causes = (c for c in self.causes if c["connection"] == connection and c["how"] != "woken")
        return sum(cause["ns"] for cause in causes if cause["what"] in states)

    def dominant(self, connection: int | None) -> tuple[object, ...]:
        """Return the kind of most of a daemon's time with requests, if it is more than half of it;
        else ()."""
        worked = self.worked(connection)
        most = threshold(Code.FEW_THREADS.value, "least_dominant") * worked
        # For a CPU that it or the caller has, a thread waits anyway.
        limited = any(row.whose == "daemon" for row in self.facts.throttled)
        lacked = (
            cause["ns"]
            for cause in self.causes
            if (cause["what"], cause["connection"]) == ("daemon_cpu", connection)
            and cause["how"] != "woken"
            and (limited or self.is_taken(cause))
        )
        if worked and sum(lacked) >= most:
            return connection, "daemon_cpu"
        for kind, group in self.slept.items():
            if kind[:2] == (connection, "lock") and group.ns >= most:
                return kind
        return ()

    def address(self, cause: core.native.Cause) -> str:
        """Return the peer's address of a wait for the network, "" if unknown."""
        if cause["fd"] is not None:
            connected = self.query.connections_of(self.daemon_pid(cause))
            if address := connected.get(cause["fd"]):
                return address
        if cause["peer"]:
            return cause["peer"]
        known = {*self.query.connections_of(self.daemon_pid(cause)).values()}
        return next(iter(known)) if len(known) == 1 else ""

    def files(self, causes: Sequence[core.native.Cause]) -> tuple[dict[str, Value], bool]:
        """Return the file that the daemon waited for most, and its disk; and whether that is known,
        as the file was open for the whole recording.

        Else it is inferred: the only disk of the daemon's other files, if it fits the kernel's
        functions. A page that is not in memory may be of any file, also of the program."""
        pid = self.daemon_pid(causes[0])
        known = {f.fd: f for f in self.source.session.files if f.pid == pid}
        files: dict[File, int] = defaultdict(int)
        types: dict[str, int] = defaultdict(int)
        for cause in causes:
            if file := known.get(-1 if cause["fd"] is None else cause["fd"]):
                files[file] += cause["ns"]
            for name, _, kernel in reversed(cause["last"]):
                if kernel and (fstype := _FILE_SYSTEMS.get(name.split("_")[0])):
                    types[fstype] += cause["ns"]
                    break
        whole = sum(cause["ns"] for cause in causes)
        if files:
            file = max(files, key=lambda file: files[file])
            return {"below": file.path, "disk": file.disk}, True
        found = [fstype for fstype, ns in types.items() if ns >= _WHOLE * whole]
        # Those up to stderr are of whoever started it.
        disks = {file.disk: file.fstype for file in known.values() if file.fd > 2}
        if len(disks) == 1 and all(cause["how"] == "disk" for cause in causes):
            ((disk, fstype),) = disks.items()
            if found in ([], [fstype]):
                return {"disk": disk}, False
        return ({"fstype": found[0]} if found else {}), True

    def mount(self, cause: core.native.Cause) -> TracedMount | None:
        """Return the mount that a cause is about."""
        return self.mount_of(cause["connection"])

    def mount_of(self, connection: int | None) -> TracedMount | None:
        """Return the mount of a connection."""
        mounts = (m for m in self.source.session.mounts if m.connection is not None)
        return next((m for m in mounts if m.connection == connection), None)

    def daemon_pid(self, cause: core.native.Cause) -> int | None:
        mount = self.mount(cause)
        return mount.daemon_pid if mount else None

    def daemon(self, cause: core.native.Cause) -> str:
        """Return the name of the daemon that a cause is about."""
        pid = self.daemon_pid(cause)
        return self.query.names.daemon(pid) or "the daemon"

    def comm(self, pid: int) -> str:
        return self.comms.get(pid, "") or self.query.names.daemon(pid)

    # Places

    def path(self, node: int) -> tuple[str, bool]:
        """Return a file's path with its mount point, and whether it is complete."""
        connection, path = self.answer["nodes"][node]
        mount = self.query.names.mount(connection).rstrip("/")
        if path is None:
            return "", False
        text, whole = path
        if not whole:
            return f"{mount}/…/{text}", False
        return f"{mount}/{text}".rstrip("/") or "/", True

    def place(self, rows: Iterable[tuple[str, int, int, int, int]]) -> Place:
        """Return the place with most of the time of (operation, file, requests, ns waited, the
        requests' own ns)."""
        by: dict[str, int] = defaultdict(int)
        rows = list(rows)
        for operation, _, _, ns, _ in rows:
            by[operation] += ns
        operation, *others = sorted(by, key=lambda name: (-by[name], name))
        least = (1 - _WHOLE) * sum(by.values())
        also = tuple(name for name in others if by[name] >= least)[:_FEW]
        of = [row[1:] for row in rows if row[0] == operation]
        requests, whole = sum(n for _, n, _, _ in of), by[operation]
        all_own = sum(own for *_, own in of)
        all_of = self.operations.get(operation, (0, 0, 0))[0]
        directory = operation in _DIRECTORIES

        def at(path: str, kind: str, n: int, ns: int) -> Place:
            return Place(operation, path, kind, n, max(all_of, n), ns, also)

        node, n, ns, own = max(of, key=lambda row: row[2])
        path, known = self.path(node)
        if ns >= _WHOLE * whole and path:
            return at(path, "directory" if directory else "file", n, own)
        above: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        mounts = {m.rstrip("/") or "/" for m in self.query.names.mounts.values()}
        for node, n, ns, own in of:
            path, known = self.path(node)
            if not known:
                continue
            if not directory:
                path = os.path.dirname(path)
            while path and path != "/":
                above[path][0] += n
                above[path][1] += ns
                above[path][2] += own
                if path in mounts:
                    break
                path = os.path.dirname(path)
        fit = [path for path, (_, ns, _) in above.items() if ns >= _WHOLE * whole]
        if not fit:
            return at("", "", requests, all_own)
        path = max(fit, key=len)
        n, _, own = above[path]
        return at(path, "mount" if path in mounts else "directory", n, own)

    def places(self, causes: Iterable[core.native.Cause]) -> Place:
        return self.place(
            (*row, int(row[3] / cause.get("part", 1.0)))
            for cause in causes
            for row in cause["places"]
        )

    def callers(self, rows: Iterable[tuple[int, int, int]]) -> tuple[Caller, ...]:
        """Return the processes with most of the time of (process, requests, ns)."""
        by: dict[int, int] = defaultdict(int)
        for pid, _, ns in rows:
            by[pid] += ns
        whole = sum(by.values()) or 1
        most = sorted(by.items(), key=lambda row: (-row[1], row[0]))[:_FEW]
        shares = (Caller(self.comm(pid), pid, ns / whole) for pid, ns in most)
        return tuple(caller for caller in shares if caller.share >= _LEAST_CALLER)

    def callers_of(self, causes: Iterable[core.native.Cause]) -> tuple[Caller, ...]:
        return self.callers(row for cause in causes for row in cause["callers"])

    def function_of(self, causes: Iterable[core.native.Cause]) -> tuple[str, float]:
        """Return the function with most of the causes' time, and its share of what has stacks."""
        by: Counter[str] = Counter()
        for cause in causes:
            for frames, ns in cause["own"]:
                by[self.function(frames)] += ns
        whole = sum(by.values())
        named = [(name, ns) for name, ns in by.most_common() if name]
        return (named[0][0], named[0][1] / whole) if named and whole else ("", 1.0)

    def function(self, frames: Sequence[tuple[str, str, bool]]) -> str:
        """Return the innermost function of a stack outside of libraries; if there is none, of
        another library than libc and libfuse; "" if there is none."""
        names = [mount.comm for mount in self.source.session.mounts if mount.comm]
        callbacks = {p.function for p in self.source.probes if p.layer == "daemon"}
        found = ""
        for name, path, kernel in reversed(frames):
            file = os.path.basename(path)
            if kernel or says_nothing(name, file) or file.startswith("libfuse"):
                continue
            kind = kind_of(name, path, kernel, names, callbacks)
            if kind in ("daemon", "program"):
                return name
            found = found or (name if kind == "library" else "")
        return found

    # Needless requests

    def needless(self, name: str, operations: Sequence[str]) -> tuple[int, int]:
        """Return number and time of a class's requests, without those of hammering processes."""
        rows = self.rows_of_class(name, operations)
        return sum(n for _, n, _ in rows), int(self.kept * sum(ns for *_, ns in rows))

    def left(self, operation: str) -> int:
        """Return the time of an operation's requests, small ones apart, that no finding has yet."""
        whole = sum(self.needless(name, [operation])[1] for name in _ASKED)
        return max(whole - self.taken[operation], 0)

    def place_of_class(self, name: str, operations: Sequence[str]) -> Place:
        return self.place((*row, row[3]) for row in self._places_of_class(name, operations))

    def mount_of_class(self, name: str, operations: Sequence[str]) -> TracedMount | None:
        """Return the mount with most of the time of a class's requests, None if unknown."""
        mounts = self.source.session.mounts
        if len(mounts) == 1:
            return mounts[0]
        by: Counter[int | None] = Counter()
        for _, node, _, ns in self._places_of_class(name, operations):
            by[self.answer["nodes"][node][0]] += ns
        return self.mount_of(by.most_common(1)[0][0]) if by else None

    def _places_of_class(
        self, name: str, operations: Sequence[str]
    ) -> Iterator[tuple[str, int, int, int]]:
        """Yield operation, file, number and time of a class's requests."""
        for kind, operation, node, n, ns in self.answer["class_places"]:
            if kind == name and operation in operations:
                yield operation, node, n, ns

    def callers_of_class(self, name: str, operations: Sequence[str]) -> tuple[Caller, ...]:
        return self.callers(self.rows_of_class(name, operations))

    def rows_of_class(self, name: str, operations: Sequence[str]) -> list[tuple[int, int, int]]:
        """Return process, number and time of a class's requests, without hammering processes."""
        return [
            (pid, n, ns)
            for kind, operation, pid, n, ns in self.answer["classes"]
            if kind == name and operation in operations and pid not in self.hammering
        ]

    def with_below(self) -> str:
        """Return what shows the causes of a mount below, whose caller is a daemon."""
        if self.filters.callers and len(self.query.names.mounts) > 1:
            return (
                f"{self._command('why')}   # of all callers and mounts: the daemon's own requests, "
                "to the mount below, are not selected"
            )
        return "record the mount below, too: a second --mount shows its cause"

    def command(self, name: str, *words: str) -> str:
        """Return a command about the same part of this recording."""
        selected = [] if "--pid" in words else self.filters.options
        return self._command(name, *selected, *words)

    def _command(self, name: str, *words: str) -> str:
        return shlex.join(["fusetools", name, *given(str(self.source.path)), *words])


Rule = Callable[[Digest], Iterator[Finding]]


def _finding(
    digest: Digest,
    code: Code,
    ns: int,
    subject: dict[str, Value],
    figures: dict[str, int | float],
    *,
    callers: tuple[Caller, ...] = (),
    fix: str = "",
    sure: str = "measured",
    against: Iterable[Reason] = (),
    more: str,
) -> Finding:
    share = digest.share(ns)
    subject = {name: value for name, value in subject.items() if value not in ("", ())}
    reason = Reason(code, subject, {"time_share": share, "time_ns": ns, **figures}, fix)
    return Finding(reason, share, ns, callers, sure, tuple(against), more)


# Waits of callers outside of requests (MountCalls in results/stages.py).
_OUTSIDE = {
    "dirty_throttling": Code.DIRTY_THROTTLING,
    "page": Code.PAGES_AWAITED,
    "inode_lock": Code.INODE_LOCK,
    "directory_lock": Code.DIRECTORY_LOCK,
    "permission": Code.ACCESS_PERMISSION,
    "passthrough": Code.PASSTHROUGH_WAITS,
    "other": Code.CALLERS_BLOCKED,
    "blocked": Code.CALLERS_BLOCKED,
}

# Changes of the daemon, and of another program
_FIXES_OUTSIDE = {
    Code.DIRECTORY_LOCK: "let the daemon allow parallel ones: FUSE_CAP_PARALLEL_DIROPS in init "
    "(libfuse 3.17; older ones ignore it)",
    Code.ACCESS_PERMISSION: "exempt the mount there; who it is: grep -l fanotify "
    "/proc/[0-9]*/fdinfo/*",
}
_LOCKING = ("flock", "fcntl")  # system calls that wait for other callers' locks of a file

# Sleeps of the daemon


_SLEEPS = {
    "lock": Code.DAEMON_LOCK,
    "sleep": Code.DAEMON_SLEEPS,
    "network": Code.SLOW_SERVER,
    "disk": Code.SLOW_DISK,
    "page": Code.SLOW_DISK,
    "process": Code.DAEMON_WAITS_FOR_PROCESS,
    "child": Code.DAEMON_WAITS_FOR_PROCESS,
    "fuse": Code.DAEMON_WAITS_FOR_FUSE,
    "on_cpu": Code.DAEMON_THREAD_BUSY,
    "stopped": Code.DAEMON_HALTED,
    "traced": Code.DAEMON_HALTED,
    "frozen": Code.DAEMON_HALTED,
}
# File systems below, by the first word of their functions in the kernel.
_FILE_SYSTEMS = {
    **{name: name for name in ("ext4", "xfs", "btrfs", "f2fs", "nfs", "nfs4", "cifs", "ceph")},
    "jbd2": "ext4",
    "zfs": "zfs",
    "zpl": "zfs",
    "ovl": "overlay",
}


def _sleeps(digest: Digest) -> Iterator[Finding]:
    """Find what the daemon waits for: a lock, a server, a disk, another process, a sleep."""
    for kind, group in digest.slept.items():
        code = _SLEEPS.get(str(kind[1]), Code.DAEMON_WAITS)
        ns = group.ns
        connection = group.most["connection"]
        dominates = digest.dominant(connection) == kind
        if dominates:
            ns += digest.ns_on("no_thread", connection)
        if not digest.counts(code, ns):
            continue
        most = group.most
        place = digest.places(group.causes)
        own, own_share = digest.function_of(group.causes)
        last = digest.function(most["last"])
        subject: dict[str, Value] = {
            **place.subject,
            "daemon": digest.daemon(most),
            "how": digest.how(most),
            "syscall": most["syscall"] or "",
            "function": own,
        }
        figures = dict(place.figures)
        if own_share < _WHOLE:
            figures["function_share"] = own_share
        if code == Code.DAEMON_LOCK:
            subject["lock"] = f"{most['lock']:#x}"
            subject["holder"] = last if most["helper"] else ""
            if dominates:
                figures["no_thread_ns"] = digest.ns_on("no_thread", connection)
            figures["lock_share"] = group.ns / (digest.worked(connection) or 1)
        elif most["helper"]:
            subject["helper"] = last
        if code == Code.DAEMON_THREAD_BUSY:  # its stack is of the end, which says little
            subject.pop("helper", None)
        over = sum(cause["ns"] for cause in group.causes if cause["timed_out"])
        if over >= _WHOLE * group.ns:
            subject["ended_by"] = "timeout"
        if most["helper"] and (start := start_of_frames(most["last"])):
            subject["start_function"] = start
        if code == Code.SLOW_SERVER:
            subject["peer"] = digest.address(most)
        sure = most["how"] != "poll" or code != Code.SLOW_SERVER
        if code == Code.SLOW_DISK:
            disk, sure = digest.files(group.causes)
            subject.update(disk)
        pids = {cause["pid"] for cause in group.causes if cause["pid"]}
        if code in (Code.DAEMON_WAITS_FOR_PROCESS, Code.DAEMON_HALTED) and pids:
            subject["comm"] = digest.comm(most["pid"] or min(pids))
            figures["processes"] = len(pids)
            if len(pids) == 1:
                (subject["pid"],) = pids
        words = [place.operation]
        if place.kind == "file":
            words += ["--path", place.path]
        elif place.kind == "directory":
            words += ["--path", f"{place.path}*"]
        yield _finding(
            digest,
            code,
            ns,
            subject,
            figures,
            callers=digest.callers_of(group.causes),
            fix=_read_ahead(digest, connection, place.operation)
            or _fewer(digest, most, place, figures)
            or (digest.with_below() if code == Code.DAEMON_WAITS_FOR_FUSE else ""),
            sure="measured" if sure else "inferred",
            more=digest.command("slow", *words),
        )


def _small() -> int:
    """Return the size in bytes from which requests are not small."""
    return int(threshold(Code.SMALL_REQUESTS.value, "most_bytes")) + 1


def _read_ahead(
    digest: Digest, connection: int | None, operation: str, below: int = sys.maxsize
) -> str:
    """Return how to make requests larger, where reads in order are as large as the mount allows,
    and smaller than ``below`` bytes: fewer would wait. "": they are not."""
    mount = digest.mount_of(connection)
    if mount is None or operation != "read":
        return ""
    # POSIX_FADV_SEQUENTIAL doubles the read-ahead of a file (mm/fadvise.c): cat(1), cp(1), sort(1).
    for name, factors in (("read_ahead_kb", (1024, 2048)), ("max_read", (1,))):
        limits = [mount.limits.get(name, 0) * factor for factor in factors]
        limits = [limit for limit in limits if 0 < limit < below]
        for row in digest.answer["transfers"]:
            at_limit = sum(n for size, n in row["sizes"] if size in limits)
            largest = min(at_limit, row["sequential"])
            if row["operation"] == "read" and 2 * largest > row["requests"]:
                # A file keeps the read-ahead of its opening.
                later = "; for files opened later" if name == "read_ahead_kb" else ""
                now = f"now {mount.limits[name]:,}{later}"
                return f"{change(name, mount.connection or 0)}   # {now}"
    return ""


def _fewer(
    digest: Digest, cause: core.native.Cause, place: Place, figures: dict[str, int | float]
) -> str:
    """Return how most of the requests that wait could be saved, and add their share of the
    operation's requests on the mount. "": most are needed."""
    nodes, operation = digest.answer["nodes"], place.operation

    def here(node: int) -> bool:
        return nodes[node][0] == cause["connection"]

    rows = [row for row in digest.answer["class_places"] if row[1] == operation and here(row[2])]
    of = sum(n for *_, n, _ in rows)
    saved: dict[str, int] = defaultdict(int)
    if operation in _LARGER:
        saved["larger"] = sum(n for kind, *_, n, _ in rows if kind == "small")
    if operation in _ATTRIBUTES and _hides_nothing(digest, operation):
        saved["attributes"], *_ = _without_attribute(digest, operation)
        of = max(of, saved["attributes"])
    for row in digest.answer["asked"] if operation in ("lookup", "getattr") else ():
        if row["operation"] == operation and row["most"] and here(row["most"][0][0]):
            saved["negative" if row["negative"] else "timeouts"] += row["saved"][0]
    most = max(saved, key=lambda kind: saved[kind], default="")
    if saved[most] < threshold(Code.CACHES_OFF.value, "least_saved") or 2 * saved[most] <= of:
        return ""
    figures["saved_share"] = min(saved[most] / of, 1.0) if of else 1.0
    return _LARGER[operation] if most == "larger" else advice(most, digest.mount(cause))


# Threads and CPUs


def _few_threads(digest: Digest) -> Iterator[Finding]:
    """Find requests that waited because all threads were busy with others."""
    code = Code.FEW_THREADS
    of = {cause["connection"] for cause in digest.causes if cause["what"] == "no_thread"}
    for connection in sorted(of, key=lambda number: number or 0):
        if not digest.dominant(connection):
            yield from _threads_of(digest, code, connection)


def _threads_of(digest: Digest, code: Code, connection: int | None) -> Iterator[Finding]:
    """Find too few threads of a mount's daemon."""
    ns = digest.ns_on("no_thread", connection)
    if not digest.counts(code, ns):
        return
    causes = [
        cause
        for cause in digest.causes
        if (cause["what"], cause["connection"]) == ("no_thread", connection)
    ]
    served = dict(digest.answer["threads"])
    threads = served.get(connection, 0)
    callers = dict(digest.answer["waiters"]).get(connection, 0)
    figures: dict[str, int | float] = {"threads": threads, "callers": callers}
    subject: dict[str, Value] = {"daemon": digest.daemon(max(causes, key=lambda c: c["ns"]))}
    against = []
    busy = sum(digest.ns_on(what, connection) for what in ("on_cpu", "computes"))
    on_cpu = busy / (digest.worked(connection) or 1)
    cpus = digest.source.session.host.cpus
    if cpus and threads >= cpus and on_cpu >= threshold(code.value, "least_dominant"):
        against.append(Reason(Code.WHY_THREADS_BUSY, {}, {"cpu_share": on_cpu, "cpus": cpus}))
    fixes = [more_threads(digest.mount(causes[0]), threads)]
    if digest.places(causes).operation == "read":
        fixes.insert(0, _read_ahead(digest, connection, "read", below=_small()))
    yield _finding(
        digest,
        code,
        ns,
        subject,
        figures,
        callers=digest.callers_of(causes),
        fix="\n".join(filter(None, fixes)),
        against=against,
        more=digest.command("queue"),
    )


def _cpu(digest: Digest) -> Iterator[Finding]:
    """Find threads that were ready to run and had no CPU: a quota, or other programs."""
    sides = (("daemon", "daemon_cpu"), ("workload", "caller_cpu"))
    for whose, what in sides:
        ns = digest.ns(what)
        for connection in {c["connection"] for c in digest.causes} if whose == "daemon" else ():
            if digest.dominant(connection) == (connection, what):
                ns += digest.ns_on("no_thread", connection)
        causes = [cause for cause in digest.causes if cause["what"] == what]
        rows = [row for row in digest.facts.throttled if row.whose == whose]
        # A quota of a cgroup above counts the same waits again.
        quota = max(rows, key=lambda row: row.ns, default=None)
        at_once = max(ns / (digest.seconds * 1e9), 1.0)
        if quota is not None:
            explained = min(ns, int(quota.ns * at_once))
            if digest.counts(Code.CPU_QUOTA, explained):
                ns -= explained
                digest.by_quota[what] = explained
                yield _finding(
                    digest,
                    Code.CPU_QUOTA,
                    explained,
                    {"whose": whose, "cgroup": quota.cgroup},
                    {"times": quota.times, "throttled_ns": quota.ns},
                    callers=digest.callers_of(causes),
                    fix=f"{unlimited(quota.cgroup)}   # no quota; or a larger one",
                    more=digest.command("stages"),
                )
        others = [c for c in causes if digest.is_taken(c) and not digest.is_recorders(c)]
        taken = sum(cause["ns"] for cause in others)
        # Without a free thread as all of them lacked a CPU: for the same reasons.
        ns = min(ns, int(taken * max(ns / (sum(cause["ns"] for cause in causes) or 1), 1)))
        if not digest.counts(Code.CPU_TAKEN, ns):
            continue
        by: Counter[str] = Counter()
        pids: dict[str, int] = {}
        for cause in sorted(others, key=lambda cause: cause["ns"]):
            pid = cause["pid"] or 0
            name = digest.comm(pid) or f"pid {pid}"
            by[name] += cause["ns"]
            pids[name] = pid
        (most, its), *rest = by.most_common(_FEW)
        subject: dict[str, Value] = {
            "whose": whose,
            "comm": most,
            "pid": pids[most],
            "others": tuple(name for name, _ in rest),
        }
        figures = {"taker_share": its / sum(cause["ns"] for cause in others)}
        mount = digest.mount(others[-1]) if whose == "daemon" else None
        if mount is not None and mount.priority:
            subject["priority"] = mount.priority
        fix = _sooner(mount) if mount is not None else ""
        yield _finding(
            digest,
            Code.CPU_TAKEN,
            ns,
            subject,
            figures,
            callers=digest.callers_of(causes),
            fix=fix,
            more=digest.command("stages"),
        )


def _sooner(mount: TracedMount) -> str:
    """Return the command that lets a daemon have a CPU as soon as others, or sooner if it does not
    yield to them. "": unknown. A cgroup's weight counts beside those of other groups, which a
    recording does not have."""
    threads = f"$(ls /proc/{mount.daemon_pid}/task)"
    if mount.priority.startswith("nice"):
        return f"renice -n 0 -p {threads}"
    if mount.priority:
        return f"chrt --all-tasks --other -p 0 {mount.daemon_pid}"
    if mount.weighed_by not in ("nice", "autogroup"):
        return ""
    # Within its autogroup alone, a nice value counts only beside threads of the same session.
    group = f"echo -10 > /proc/{mount.daemon_pid}/autogroup; "
    return f"{group if mount.weighed_by == 'autogroup' else ''}renice -n -10 -p {threads}"


def _daemon_cpu(digest: Digest) -> Iterator[Finding]:
    """Find requests for which the daemon computes for long."""
    code, ns = Code.DAEMON_CPU, digest.ns("computes")
    if not digest.counts(code, ns):
        return
    causes = [cause for cause in digest.causes if cause["what"] == "computes"]
    place = digest.places(causes)
    yield _finding(
        digest,
        code,
        ns,
        {**place.subject, "daemon": digest.daemon(max(causes, key=lambda c: c["ns"]))},
        dict(place.figures),
        callers=digest.callers_of(causes),
        more=digest.command("stages", place.operation),
    )


def _outside(digest: Digest) -> Iterator[Finding]:
    """Find waits of callers outside of requests: for the writing of dirty pages, for pages, for
    the lock of an inode."""
    groups: dict[tuple[Code, int | None], list[core.native.Cause]] = defaultdict(list)
    for cause in digest.causes:
        if cause["what"] == "outside" and cause["how"] in _OUTSIDE:
            code = _OUTSIDE[cause["how"]]
            if cause in digest.limited:
                code = Code.BACKGROUND_LIMIT
            elif code == Code.CALLERS_BLOCKED and cause["syscall"] in _LOCKING:
                code = Code.FILE_LOCKS
            groups[code, cause["connection"]].append(cause)
    for (code, connection), causes in groups.items():
        ns = sum(cause["ns"] for cause in causes)
        if not digest.counts(code, ns):
            continue
        most = max(causes, key=lambda cause: cause["ns"])
        mount = digest.mount(most)
        subject: dict[str, Value] = {"syscall": most["syscall"] or ""}
        if mount is not None:
            subject["path"] = mount.path
        figures: dict[str, int | float] = {"calls": sum(c["requests"] for c in causes)}
        if code in (Code.INODE_LOCK, Code.DIRECTORY_LOCK):
            _holders(digest, most, subject, figures)
        fix = _FIXES_OUTSIDE.get(code, "")
        if code == Code.DIRTY_THROTTLING and connection is not None:
            fix = f"echo 100 > /sys/class/bdi/{device(connection)}/max_ratio   # 1 for FUSE"
        if code == Code.BACKGROUND_LIMIT and mount is not None and connection is not None:
            background = digest.answer["background"]
            (flight, *_) = (row for row in background if row["connection"] == connection)
            figures |= {
                "callers": len({pid for cause in causes for pid, *_ in cause["callers"]}),
                "in_flight": round(flight["mean"], 1),
                "max_background": mount.limits["max_background"],
            }
            fix = change("max_background", connection)
        yield _finding(
            digest,
            code,
            ns,
            subject,
            figures,
            callers=digest.callers_of(causes),
            fix=fix,
            more=digest.command("stages"),
        )


_About = tuple[dict[str, Value], dict[str, Union[int, float]]]


def _special(
    digest: Digest,
    code: Code,
    command: str,
    about: Callable[[list[core.native.Cause], core.native.Cause], _About] = lambda *_: ({}, {}),
) -> Iterator[Finding]:
    """Yield the finding of the causes that have its name, with their most frequent place.

    ``command``: of fusetools, which shows more. ``about``: more of the subject, and figures in
    place of the place's, by the causes and the one of most time.
    """
    causes = [cause for cause in digest.causes if cause["what"] == code.value]
    if not causes or not digest.counts(code, digest.ns(code.value)):
        return
    place = digest.places(causes)
    subject, figures = about(causes, max(causes, key=lambda cause: cause["ns"]))
    yield _finding(
        digest,
        code,
        digest.ns(code.value),
        {**place.subject, **subject},
        figures or place.figures,
        callers=digest.callers_of(causes),
        more=digest.command(command, place.operation),
    )


def _file_locks(digest: Digest) -> Iterator[Finding]:
    """Find callers that wait for locks of files."""
    return _special(digest, Code.FILE_LOCKS, "slow")


def _interrupted(digest: Digest) -> Iterator[Finding]:
    """Find requests that signals to their callers ended."""

    def about(_: object, most: core.native.Cause) -> _About:
        return {"daemon": digest.daemon(most), "signal": signal_name(most["signal"])}, {}

    return _special(digest, Code.INTERRUPTED, "errors", about)


def _resent(digest: Digest) -> Iterator[Finding]:
    """Find requests that a process read and left, until they were sent again."""

    def about(causes: list[core.native.Cause], most: core.native.Cause) -> _About:
        pid, requests = most["pid"], sum(cause["requests"] for cause in causes)
        mean = digest.ns(Code.RESENT.value) // (requests or 1)
        reader: dict[str, Value] = {"pid": pid, "comm": digest.comm(pid)} if pid else {}
        return reader, {"requests": requests, "mean_ns": mean}

    return _special(digest, Code.RESENT, "slow", about)


def _holders(
    digest: Digest,
    cause: core.native.Cause,
    subject: dict[str, Value],
    figures: dict[str, int | float],
) -> None:
    """Add what callers did while they held an inode's lock: the requests of the same system call,
    and what the daemon did for most of their time."""
    rows = [row for row in digest.answer["calls"] if row[1] == cause["syscall"]]
    if not rows:
        return
    operation, _, (requests, ns, _) = max(rows, key=lambda row: row[2][1])
    subject["operation"], figures["mean_ns"] = operation, ns // max(requests, 1)
    for kind, group in digest.slept.items():
        spent = sum(ns for c in group.causes for name, _, _, ns in c["places"] if name == operation)
        if kind[0] == cause["connection"] and 2 * spent > ns:
            subject["how"], subject["daemon"] = digest.how(group.most), digest.daemon(group.most)


# Needless requests


def _hammer(digest: Digest) -> Iterator[Finding]:
    """Find one process among others that asks for one file all the time."""
    code = Code.HAMMER
    processes = digest.answer["processes"]
    all_requests = sum(n for _, n, _ in processes)
    if len(processes) < 2 or not all_requests:
        return
    pid, requests, _ = max(processes, key=lambda row: row[1])
    rows = [row for row in digest.answer["of_process"] if row[0] == pid]
    # The lookups on the way to a file are about its directories.
    lookups = sum(n for _, operation, _, n, _ in rows if operation == "lookup")
    rows = [row for row in rows if row[1] != "lookup"]
    if not rows:
        return
    _, operation, node, same, _ = max(rows, key=lambda row: row[3])
    rate = requests / digest.seconds
    if (
        requests < threshold(code.value, "least_requests_share") * all_requests
        or same < threshold(code.value, "least_same_share") * (requests - lookups)
        or same < threshold(code.value, "least_others") * 10
        or all_requests - requests < threshold(code.value, "least_others")
        or rate < threshold(code.value, "least_per_second")
    ):
        return
    ns = int(digest.kept * sum(ns for *_, of, _, ns in digest.answer["classes"] if of == pid))
    if not digest.counts(code, ns):
        return
    digest.hammering.add(pid)
    digest.take(ns, ((op, ns) for _, op, of, _, ns in digest.answer["classes"] if of == pid))
    path, _ = digest.path(node)
    yield _finding(
        digest,
        code,
        ns,
        {"comm": digest.comm(pid), "pid": pid, "operation": operation, "path": path},
        {
            "requests_share": requests / all_requests,
            "requests": requests,
            "per_second": round(rate),
            "same": same,
        },
        callers=(Caller(digest.comm(pid), pid, 1.0),),
        more=digest.command("stages", "--pid", str(pid)),
    )


def _caches_off(digest: Digest) -> Iterator[Finding]:
    """Find questions that are asked again though nothing has changed."""
    code = Code.CACHES_OFF
    # Timeouts cover nothing else: extended attributes, for one, are asked for each time.
    rows = [
        row
        for row in digest.answer["asked"]
        if row["operation"] in ("lookup", "getattr") and not row["negative"] and row["saved"][0]
    ]
    saved = sum(row["saved"][0] for row in rows)
    if not rows or saved < threshold(code.value, "least_saved"):
        return
    if saved < threshold(code.value, "least_saved_share") * digest.requests:
        return
    operations = [row["operation"] for row in rows]
    requests, ns = digest.needless("again", operations)
    if not requests or not digest.counts(code, ns):
        return
    most = max(rows, key=lambda row: row["saved"][0])
    place = digest.place_of_class("again", operations)
    digest.take(
        ns, ((operation, digest.needless("again", [operation])[1]) for operation in operations)
    )
    yield _finding(
        digest,
        code,
        ns,
        {**place.subject, "operation": most["operation"]},
        {
            "requests": most["requests"],
            "distinct": most["keys"],
            "times": round(most["requests"] / max(most["keys"], 1), 1),
            "saved_share": saved / digest.requests,
            "timeout_ns": 1_000_000_000,
        },
        callers=digest.callers_of_class("again", operations),
        fix=advice("timeouts", digest.mount_of_class("again", operations)),
        more=digest.command("count", "getattr|lookup"),
    )


def _negative_lookups(digest: Digest) -> Iterator[Finding]:
    """Find lookups of names that do not exist."""
    code = Code.NEGATIVE_LOOKUPS
    rows = [row for row in digest.answer["asked"] if row["negative"]]
    lookups = digest.operations.get("lookup", (0, 0, 0))[0]
    if not rows or not lookups:
        return
    row = rows[0]
    if row["requests"] < threshold(code.value, "least_requests"):
        return
    if row["requests"] < threshold(code.value, "least_share_of_lookups") * lookups:
        return
    requests, ns = digest.needless("negative", ["lookup"])
    if not requests or not digest.counts(code, ns):
        return
    names = []
    for node, name, _ in row["most"][:_FEW]:
        if name:
            # libfuse's high-level API has paths in place of names.
            below = digest.path(node)[0]
            names.append(f"{below}/{os.path.basename(name)}" if below else name)
    place = digest.place_of_class("negative", ["lookup"])
    digest.take(ns, [("lookup", 1)])
    # A timeout does not help where each name is asked once.
    saved = row["saved"][0] / row["requests"]
    helps = saved >= threshold("all", "least_share")
    mount = digest.mount_of_class("negative", ["lookup"])
    yield _finding(
        digest,
        code,
        ns,
        {**place.subject, "names": tuple(names)},
        {
            "lookups_share": row["requests"] / lookups,
            "requests": row["requests"],
            "distinct": row["keys"],
            "times": round(row["requests"] / max(row["keys"], 1), 1),
            "saved_share": saved,
            "timeout_ns": 1_000_000_000,
        },
        callers=digest.callers_of_class("negative", ["lookup"]),
        fix=advice("negative", mount) if helps else "",
        more=digest.command("errors", "lookup"),
    )


def _small_requests(digest: Digest) -> Iterator[Finding]:
    """Find small reads or writes next to each other."""
    code = Code.SMALL_REQUESTS
    for row in digest.answer["transfers"]:
        if not row["waits"] or row["requests"] < threshold(code.value, "least_requests"):
            continue
        if row["sequential"] < threshold(code.value, "least_sequential_share") * row["requests"]:
            continue
        size, alike = row["sizes"][0]
        if not size or size > threshold(code.value, "most_bytes"):
            continue
        requests, ns = digest.needless("small", [row["operation"]])
        if not requests or not digest.counts(code, ns):
            continue
        place = digest.place_of_class("small", [row["operation"]])
        nodes = (digest.answer["nodes"][node] for node, _ in row["files"])
        connection = next((connection for connection, _ in nodes), None)
        digest.take(ns, [(row["operation"], 1)])
        yield _finding(
            digest,
            code,
            ns,
            place.subject,
            {
                "requests": row["requests"],
                "sequential": row["sequential"],
                "alike": alike,
                "size_bytes": size,
            },
            callers=digest.callers_of_class("small", [row["operation"]]),
            fix=_read_ahead(digest, connection, row["operation"]) or _LARGER[row["operation"]],
            more=digest.command("stages", "--by", "size", row["operation"]),
        )


def _metadata(digest: Digest) -> Iterator[Finding]:
    """Find attributes that are read for each write."""
    code = Code.METADATA_FOR_EACH_WRITE
    least = threshold(code.value, "least_requests")
    writes = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
    for operation, syscall, (requests, ns, _) in digest.answer["calls"]:
        if operation != "getxattr" or syscall not in writes or requests < least:
            continue
        ns = min(ns, digest.left(operation))
        if not digest.counts(code, ns):
            continue
        digest.take(ns, [(operation, 1)])
        yield _finding(
            digest,
            code,
            ns,
            {"operation": operation, "syscall": syscall},
            {"requests": requests},
            fix="\n".join(filter(None, [_no_attributes(digest, operation), _KILLPRIV])),
            more=digest.command("stages", operation),
        )


def _attributes_absent(digest: Digest) -> Iterator[Finding]:
    """Find extended attributes that are asked for and that files do not have."""
    code = Code.ATTRIBUTES_ABSENT
    for operation in _ATTRIBUTES:
        of = digest.operations.get(operation, (0, 0, 0))[0]
        failed, waited, error = _without_attribute(digest, operation)
        if failed < threshold(code.value, "least_requests"):
            continue
        if failed < threshold(code.value, "least_share_of_requests") * of:
            continue
        ns = int(digest.left(operation) * failed / of)
        if not digest.counts(code, ns):
            continue
        digest.take(ns, [(operation, 1)])
        callers = [row for kind in _ASKED for row in digest.rows_of_class(kind, [operation])]
        yield _finding(
            digest,
            code,
            ns,
            {"operation": operation, "error": error},
            {"requests": failed, "of": of, "mean_ns": waited // failed},
            callers=digest.callers(callers),
            fix=_no_attributes(digest, operation),
            more=digest.command("errors", operation),
        )


def _no_attributes(digest: Digest, operation: str) -> str:
    """Return the change that ends questions for attributes, "" if it would hide one that a request
    found."""
    mount = digest.mount_of_class("needed", [operation])
    return advice("attributes", mount) if _hides_nothing(digest, operation) else ""


def _hides_nothing(digest: Digest, operation: str) -> bool:
    """Return whether no request found an attribute."""
    requests, _, failed = digest.operations.get(operation, (0, 0, 0))
    return failed >= requests


def _without_attribute(digest: Digest, operation: str) -> tuple[int, int, str]:
    """Return number and time of an operation's requests that were answered with the most frequent
    error which says that there is no such attribute, and this error's name."""
    rows = [
        (requests, ns, error_name(-number))
        for name, number, background, (requests, ns, _) in digest.answer["errors"]
        if name == operation and -number in _NO_ATTRIBUTE and not background
    ]
    return max(rows, default=(0, 0, ""))


def _read_again(digest: Digest) -> Iterator[Finding]:
    """Find files that are read several times because each open drops their pages."""
    code = Code.READ_AGAIN
    if digest.hammering:  # its time is in no file's
        return
    small = digest.needless("small", ["read"])[1]
    for row in digest.answer["transfers"]:
        for node, file in row["files"][:1]:
            size, end = file["bytes"], file["end"]
            if row["operation"] != "read" or not end or file["opens"] < 2:
                continue
            if size < threshold(code.value, "least_bytes"):
                continue
            if size < threshold(code.value, "least_times") * end:
                continue
            # Also the part of waits for pages that reads in the background brought.
            own = (
                ns
                for cause in digest.causes
                if cause["what"] in _ORDINARY
                for operation, place, _, ns in cause["places"]
                if (operation, place) == ("read", node)
            )
            ns = max(int(digest.kept * sum(own)) - small, 0)
            if not digest.counts(code, ns):
                continue
            path, _ = digest.path(node)
            digest.take(ns, [("read", 1)])
            yield _finding(
                digest,
                code,
                ns,
                {"path": path},
                {
                    "size_bytes": size,
                    "requests": file["requests"],
                    "opens": file["opens"],
                    "times": round(size / end, 1),
                },
                fix=advice("pages", digest.mount_of(digest.answer["nodes"][node][0])),
                more=digest.command("slow", "read", *(["--path", path] if path else [])),
            )
            return


def _stat_for_each_entry(digest: Digest) -> Iterator[Finding]:
    """Find lists of directories whose every entry is then looked up."""
    code = Code.STAT_FOR_EACH_ENTRY
    lists, (requests, ns, _) = digest.answer["listed"]
    if requests < threshold(code.value, "least_requests"):
        return
    if not lists or requests < threshold(code.value, "least_each") * lists:
        return
    ns = min(ns, digest.needless("needed", ["lookup"])[1])
    if not digest.counts(code, ns):
        return
    digest.take(ns, [("lookup", 1)])
    change = advice("readdirplus", digest.mount_of_class("needed", ["lookup"]))
    if "readdirplus" in digest.operations:
        change = (
            "let the daemon's readdirplus, which it answers, fill in the entries' attributes "
            "(libfuse's high-level API: fillers with offsets and FUSE_FILL_DIR_PLUS), with "
            "timeouts longer than the list takes"
        )
    yield _finding(
        digest,
        code,
        ns,
        {},
        {"lists": lists, "requests": requests, "each": round(requests / lists, 1)},
        fix=change,
        more=digest.command("stages", "lookup"),
    )


# Before the recording


_BEFORE = (Code.WORKLOAD_BEFORE_TRACED, Code.WORKLOAD_ENDED_BEFORE)


def _close_fewer(reason: Reason) -> str:
    """Return what helps where a process closes all descriptors that it could have: up to its limit
    (getrlimit(2), RLIMIT_NOFILE), which systemd and containers set to a million and more."""
    calls, failed = (reason.figures.get(name, 0) for name in ("calls", "failed"))
    if reason.subject.get("call") != "close" or failed < threshold("mounted_late", "least_failed"):
        return ""
    return "ulimit -n 1024   # before it is started" if failed >= _WHOLE * calls else ""


def _mounted_late(digest: Digest) -> Iterator[Finding]:
    """Find workloads that ran for long until what they use was mounted. No request was made yet:
    it is no part of the time that callers waited for the mount."""
    code = Code.MOUNTED_LATE
    for reason in digest.source.session.missing:
        ns = int(reason.figures.get("mounted_ns", 0)) if reason.code in _BEFORE else 0
        of = ns + int(1e9 * digest.seconds)
        if (
            ns >= threshold(code.value, "least_ns")
            and ns >= threshold(code.value, "least_part") * of
        ):
            figures = {**reason.figures, "time_ns": ns}
            found = Reason(code, reason.subject, figures, _close_fewer(reason))
            yield Finding(found, 0.0, ns, (), "measured", (), "fusetools stuck")


# Errors, and the recording


def _errors(digest: Digest) -> Iterator[Finding]:
    """Find operations that fail often, with errors that no program expects."""
    code = Code.ERRORS_FREQUENT
    asynchronous = dict(digest.answer["asynchronous"])
    for operation, number, background, (requests, ns, _) in digest.answer["errors"]:
        name = error_name(-number)
        of = (asynchronous if background else digest.operations)[operation][0]
        in_vain = name == "EINTR" and digest.ns(Code.INTERRUPTED.value)
        if -number in _EXPECTED or in_vain or operation in _WOULD_WAIT.get(name, ()):
            continue
        if requests < threshold(code.value, "least_requests"):
            continue
        if requests < threshold(code.value, "least_share_of_requests") * of:
            continue
        yield _finding(
            digest,
            code,
            0,
            {"operation": operation, "error": name, "place": "background" if background else ""},
            {"requests": requests, "of": of, "failed_ns": ns},
            more=digest.command("errors", operation),
        )


def _content_refused(digest: Digest) -> Iterator[Finding]:
    """Find answers whose content the kernel refused: a defect of the daemon, however rare."""
    for operation, syscall, calls in digest.answer["refused"]:
        yield _finding(
            digest,
            Code.CONTENT_REFUSED,
            0,
            {"operation": operation, "syscall": syscall},
            {"calls": calls},
            more=digest.command("errors", operation),
        )


def _disconnected(digest: Digest) -> Iterator[Finding]:
    """Find calls on a mount whose daemon has ended: no request shows them."""
    calls = digest.answer["disconnected"]
    if not calls:
        return
    subject: dict[str, Value] = {"path": ""}
    figures: dict[str, int | float] = {"calls": calls}
    fix, mounts = "", digest.source.session.mounts
    if len(mounts) == 1:
        (mount,) = mounts
        subject["path"] = mount.path
        end = _end(digest, mount)
        if mount.follower is not None:
            subject["follower"] = mount.follower
        subject |= end.subject if end else {}
        figures |= end.figures if end else {}
        if mount.follower is None:
            fix = f"umount -l {shlex.quote(mount.path)}   # and mount it again"
    yield _finding(
        digest,
        Code.DISCONNECTED,
        0,
        subject,
        figures,
        fix=fix,
        more=digest.command("errors"),
    )


class End(NamedTuple):
    """A daemon's end: how and when, as subject and figures of a reason."""

    subject: dict[str, Value]
    figures: dict[str, int | float]

    @property
    def expected(self) -> bool:
        """Return whether it ended as daemons do when they are unmounted, and at the end."""
        late = self.figures.get("ended_ns", 0) >= _WHOLE * self.figures["seconds_ns"]
        return late and self.subject.get("ending") == ending(0)


_STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
_SOON = 10_000_000_000  # ns from a signal to the end of a daemon that ends because of it
# A process raises these itself, though the kernel sends them.
_FAULTS = (*(signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV),)


def _end(digest: Digest, mount: TracedMount) -> End | None:
    """Return how the daemon of a mount ended; None if it did not."""
    states = (s for s in digest.source.unanswering["daemons"] if s["pid"] == mount.daemon_pid)
    state = next(states, None)
    ended = next((e for e in digest.source.session.ends if e.pid == mount.daemon_pid), None)
    at = state["ended"] if state else None
    if mount.daemon_pid is None or (ended is None and at is None):
        return None
    subject: dict[str, Value] = {"pid": mount.daemon_pid, "comm": mount.comm}
    figures: dict[str, int | float] = {"seconds_ns": round(1e9 * digest.seconds)}
    if mount.follower is not None:
        subject["follower"] = mount.follower
    status = ended.status if ended else None
    if at is not None:
        figures["ended_ns"] = max(at - digest.source.unanswering["first"], 0)
    if status is not None:
        subject["ending"] = ending(status)
    sent = state["signal"] if state else None
    if sent and status is not None and os.WIFSIGNALED(status):
        sent = sent if sent["number"] == os.WTERMSIG(status) else None
    elif sent and (sent["number"] not in _STOPPING or at is None or at - sent["time"] > _SOON):
        sent = None
    if sent:
        subject["signal"] = signal_name(sent["number"])
        subject["sender"] = f"{sent['comm']} (pid {sent['pid']})"
        own = sent["pid"] == mount.daemon_pid
        if own and (sent["code"] <= 0 or sent["number"] in _FAULTS):
            subject["sender"] = "itself"
        elif sent["code"] > 0:
            subject["sender"] = "the kernel"
        if at is not None:
            figures["before_ns"] = max(at - sent["time"], 0)
    killed = status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9
    if ended and ended.oom_kills and killed and subject.get("sender") in (None, "the kernel"):
        figures["oom_kills"] = ended.oom_kills
    return End(subject, figures)


def _daemon_ended(digest: Digest) -> Iterator[Finding]:
    """Find daemons that ended while no call failed because of it: their mounts are gone."""
    mounts, failed = digest.source.session.mounts, digest.answer["disconnected"]
    if (failed and len(mounts) == 1) or not (failed or digest.source.session.ends):
        return  # the finding of these calls tells it, or no daemon ended
    for mount in mounts:
        end = _end(digest, mount)
        if end and not end.expected:
            subject: dict[str, Value] = {"path": mount.path, **end.subject}
            yield _finding(
                digest, Code.DAEMON_ENDED, 0, subject, end.figures, more="fusetools stuck"
            )


_UNANSWERED = (
    *("unfinished", "interrupted", "aborted", "daemon_ended", "timeout"),
    *("refused", "dropped"),
)


def _unanswered(digest: Digest) -> Iterator[Finding]:
    """Find requests without a reply: callers waited, and nobody worked on them."""
    code, left = Code.UNANSWERED, digest.unknown
    for fate, (requests, ns, _) in digest.answer["fates"]:
        if fate not in _UNANSWERED:
            continue
        each = ns // (requests or 1)
        ns = min(ns, left)
        if not digest.counts(code, ns):
            continue
        left -= ns
        subject, fix = _silent_daemon(digest, requests)
        yield _finding(
            digest,
            code,
            ns,
            {"fate": fate, **subject},
            {"requests": requests, "of": digest.requests, "mean_ns": each},
            fix=fix,
            more=digest.command("errors") if fate != "unfinished" else "fusetools stuck",
        )


def _silent_daemon(digest: Digest, requests: int) -> tuple[dict[str, Value], str]:
    """Return the daemon that did not answer these requests, what it did instead, and the command
    that continues it; nothing if that is not known of all requests."""
    states = digest.source.unanswering["daemons"]
    idle = [s for s in states if s["hangs"] or s["stopped"] is not None or s["ended"] is not None]
    if not idle or sum(state["unanswered"] for state in idle) < requests:
        return {}, ""
    most = max(idle, key=lambda state: state["unanswered"])
    who = {"daemon": f"the daemon (pid {most['pid']})"}
    if most["ended"] is not None:
        return {**who, "how": "ended"}, ""
    if most["stopped"] is not None:
        return {**who, "how": "stopped"}, f"kill -CONT {most['pid']}"
    return {**who, "how": "idle"}, ""


def _recording(digest: Digest) -> Iterator[Finding]:
    """Find recordings whose own cost is a large part of what they show."""
    code, ns = Code.RECORDING_DISTURBS, digest.recorded
    had: Counter[str] = Counter()
    for cause in filter(digest.is_recorders, digest.causes):
        had[cause["what"]] += cause["ns"]
    # A quota kept the threads from the CPU, whoever had it.
    left = {what: max(digest.ns(what) - digest.by_quota[what], 0) for what in had}
    on_cpu = sum(min(ns, left[what]) for what, ns in had.items())
    if digest.counts(code, ns + on_cpu):
        more = digest.command("stages", "--corrected")
        digest.take(ns, ((op, ns) for _, op, _, _, ns in digest.answer["classes"]))
        figures: dict[str, int | float] = {"on_cpu_ns": on_cpu} if on_cpu else {}
        yield _finding(digest, code, ns + on_cpu, {}, figures, more=more)


RULES: tuple[tuple[tuple[Code, ...], Rule], ...] = (
    ((*dict.fromkeys(_SLEEPS.values()), Code.DAEMON_WAITS), _sleeps),
    ((Code.MOUNTED_LATE,), _mounted_late),
    ((Code.FEW_THREADS,), _few_threads),
    ((Code.CPU_QUOTA, Code.CPU_TAKEN), _cpu),
    ((Code.DAEMON_CPU,), _daemon_cpu),
    ((Code.BACKGROUND_LIMIT, *dict.fromkeys(_OUTSIDE.values())), _outside),
    ((Code.FILE_LOCKS,), _file_locks),
    ((Code.INTERRUPTED,), _interrupted),
    ((Code.RESENT,), _resent),
    ((Code.HAMMER,), _hammer),
    ((Code.CACHES_OFF,), _caches_off),
    ((Code.NEGATIVE_LOOKUPS,), _negative_lookups),
    ((Code.SMALL_REQUESTS,), _small_requests),
    ((Code.METADATA_FOR_EACH_WRITE,), _metadata),
    ((Code.ATTRIBUTES_ABSENT,), _attributes_absent),
    ((Code.READ_AGAIN,), _read_again),
    ((Code.STAT_FOR_EACH_ENTRY,), _stat_for_each_entry),
    ((Code.ERRORS_FREQUENT,), _errors),
    ((Code.CONTENT_REFUSED,), _content_refused),
    ((Code.DISCONNECTED,), _disconnected),
    ((Code.DAEMON_ENDED,), _daemon_ended),
    ((Code.UNANSWERED,), _unanswered),
    ((Code.RECORDING_DISTURBS,), _recording),
)
# Rules that hold where no caller waited for a request.
_WITHOUT_REQUESTS = (_mounted_late, _disconnected, _daemon_ended)
