"""Conversion of single requests from the native core's answers to the types of results."""

from __future__ import annotations

import errno
import ipaddress
import signal
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fusetools import core
from fusetools.answers.catalogue import Probe, catalogue
from fusetools.answers.filters import Filters
from fusetools.answers.source import Source
from fusetools.answers.stages import parts_of
from fusetools.results.facts import Facts
from fusetools.results.request import Aborter, Meanwhile, Request, StageTime, SyscallTime

if TYPE_CHECKING:
    from typing_extensions import Concatenate

    from fusetools.core import Arguments

AnyAnswer = TypeVar("AnyAnswer", bound="core.native.Answer")

# Errors that never reach user space (include/linux/errno.h).
_KERNELS_OWN = {512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 524: "ENOTSUPP"}


# struct fuse_out_header, include/uapi/linux/fuse.h
_OUT_HEADER = 16


class Names(NamedTuple):
    """Mount points by connection, and daemons' names by PID."""

    mounts: dict[int, str]
    daemons: dict[int, str]

    def mount(self, connection: int | None) -> str:
        """Return a connection's mount point, "" if unknown."""
        return "" if connection is None else self.mounts.get(connection, "")

    def daemon(self, pid: int | None) -> str:
        """Return a daemon's name, "" if unknown."""
        return "" if pid is None else self.daemons.get(pid, "")


class RequestQuery:
    """Access to the core's answers about requests.

    ``probes``: the events of requests and of file names."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.probes = catalogue(source.catalogue, source.events)
        daemons = {m.daemon_pid: m.comm for m in source.session.mounts if m.daemon_pid}
        self.names = Names(source.mount_points, daemons)
        self._connections: dict[int | None, dict[int, str]] = defaultdict(dict)
        for known in source.session.peers:
            self._connections[known.pid][known.fd] = known.address

    def __call__(
        self,
        question: Callable[
            Concatenate[str, Sequence[Probe], core.native.Filters, Arguments], AnyAnswer
        ],
        filters: Filters,
        *arguments: Arguments.args,
        **more: Arguments.kwargs,
    ) -> tuple[AnyAnswer, Facts]:
        """Return the core's answer and the facts of the recording."""
        native = self.source.core_filters(filters)
        answer = core.ask(question, str(self.source.path), self.probes, native, *arguments, **more)
        return answer, self.source.facts(answer, filters)

    def connections(
        self, fields: core.native.Kept, made: Sequence[core.native.Peer]
    ) -> Connections:
        """Return the connections of the daemon that processed a request. ``made``: those that
        processes made while the recording ran."""
        pid = fields["daemon_pid"]
        own = [connection for connection in made if connection[0] == pid]
        return Connections(self.connections_of(pid), own)

    def connections_of(self, pid: int | None) -> Mapping[int, str]:
        """Return the peers of a process's connections that were open for the whole recording."""
        return self._connections.get(pid, {})


class Connections:
    """Peers of a process's sockets: of those that were open during the whole recording, and of
    those that it connected meanwhile."""

    def __init__(
        self, whole: Mapping[int, str] | None = None, made: Sequence[core.native.Peer] = ()
    ) -> None:
        self._whole = whole or {}
        self._made: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for _, descriptor, start, end, address in made:
            if known := peer(address):
                end = NO_END if end is None else end
                self._made[descriptor].append((start, end, known))

    def at(self, descriptor: int, time: int) -> str:
        """Return the peer's address at a time; "" if unknown."""
        for start, end, address in self._made.get(descriptor, ()):
            if start <= time < end:
                return address
        return self._whole.get(descriptor, "")


# System calls whose first argument is a socket (_SOCKETS), or may be one (_STREAMS).
_SOCKETS = {
    *("connect", "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "accept"),
    "accept4",
}
_STREAMS = {*_SOCKETS, "read", "readv", "write", "writev", "sendfile", "splice"}

NO_END = 1 << 63  # end of a span at the recording's end, or unknown
MOST = 10_000  # maximum number of moments of a span (native/core/src/requests/moments.rs)


class Span(NamedTuple):
    """An interval of a thread's time, in ns on the recording's clock."""

    tid: int
    start: int
    end: int


def gather(
    threads: core.native.Threads, spans: Sequence[Span | None]
) -> list[list[core.native.Moment]]:
    """Return the moments of each span's thread; an empty list where there is no span."""
    wanted = [span for span in spans if span]
    moments = iter(threads.moments(wanted) if wanted else ())
    return [next(moments) if span else [] for span in spans]


def error_name(number: int) -> str:
    """Return the name of an errno, e.g. ENOENT; "" for 0."""
    if not number:
        return ""
    return errno.errorcode.get(number) or _KERNELS_OWN.get(number) or f"errno {number}"


def signal_name(number: int) -> str:
    """Return the name of a signal, e.g. SIGALRM; "" for 0."""
    if not number:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def work_span(fields: core.native.Kept) -> Span | None:
    """Return the daemon thread's span from the callback's entry (or the read) to the reply.

    Without a reply, it ends where the thread left the request. None: unknown, or another thread
    worked on the request."""
    marks, tid = fields["marks"], fields["daemon_tid"]
    start = marks.get("callback_enter", marks.get("read"))
    end = marks.get("reply", marks.get("end", marks.get("callback_return", fields["until"])))
    if tid is None or start is None or fields["handed"]:
        return None
    if (left := fields["left"]) is not None:
        end = left if end is None else min(end, left)
    return Span(tid, start, max(start, end if end is not None else NO_END))


def guessed(probes: Sequence[Probe]) -> bool:
    """Return whether file names are inferred from the callers' next requests."""
    return not any(probe.role in ("inode", "answered") for probe in probes)


def request(
    fields: core.native.Kept, first: int, names: Names, meanwhile: Meanwhile | None = None
) -> Request:
    """Convert a request of the core. ``first``: the recording's first event, in ns."""
    marks = {name: time - first for name, time in fields["marks"].items()}
    start = marks.get("begin", min(marks.values(), default=0))
    path, whole = fields["path"] or (None, False)
    # The first argument of libfuse's high-level callbacks is the file's path, not an attribute.
    of_path = fields["operation"].endswith("xattr") and (fields["name"] or "").startswith("/")
    reply = fields["reply_len"]
    return Request(
        operation=fields["operation"],
        unique=fields["unique"],
        mount=names.mount(fields["connection"]),
        fate=fields["fate"],
        until_ns=None if fields["until"] is None else fields["until"] - first,
        handed=fields["handed"],
        reader=fields["reader"],
        replier=fields["replier"],
        refused=error_name(abs(fields["refused"])),
        dropped=fields["dropped"],
        left_ns=None if fields["left"] is None else fields["left"] - first,
        resent=fields["resent"],
        signals=fields["signals"][0],
        signal=signal_name(fields["signals"][1]),
        interrupted=fields["signals"][2],
        aborter=_aborter(fields),
        start_ns=start,
        duration_ns=fields["duration"],
        error=error_name(-fields["error"]),
        waits=fields["waits"],
        comm=fields["comm"],
        pid=fields["pid"],
        tid=fields["tid"],
        syscall=fields["syscall"] or "",
        daemon_comm=names.daemon(fields["daemon_pid"]),
        daemon_pid=fields["daemon_pid"],
        daemon_tid=fields["daemon_tid"],
        path=path,
        whole=whole,
        name=None if of_path else fields["name"],
        inode=fields["inode"],
        size_bytes=fields["size"],
        offset_bytes=fields["offset"],
        answered_bytes=reply - _OUT_HEADER if reply is not None and reply >= _OUT_HEADER else None,
        negative=fields["operation"] == "lookup" and fields["answer"] == 0 and not fields["error"],
        marks_ns=marks,
        stages=tuple(StageTime(name, ns) for name, ns, _ in fields["stages"]),
        parts_ns=tuple(_parts(*stage) for stage in fields["stages"]),
        meanwhile=meanwhile,
    )


def _aborter(fields: core.native.Kept) -> Aborter | None:
    if fields["fate"] != "aborted":
        return None
    daemon, comm = fields["aborted_by_daemon"], fields["aborter_comm"]
    return aborter(daemon, comm, fields["aborter"], fields["aborter_call"])


def aborter(daemon: bool, comm: str, pid: int | None, call: str | None) -> Aborter:
    """Return who aborted a request. ``call``: the process's system call, None if unknown."""
    if daemon:
        by = "daemon"
    elif comm.startswith("kworker/"):
        # Only the request timeout aborts from there (fuse_check_timeout in fs/fuse/dev.c).
        by = "timeout"
    else:
        by = {"umount2": "unmount", "write": "fusectl"}.get(call or "", "process")
    return Aborter(by, comm, pid)


def _parts(stage: str, ns: int, parts: Sequence[int] | None) -> dict[str, int]:
    if parts is None:
        return {}
    whole = [*parts]
    left = ns
    for at, part in enumerate(whole):
        whole[at] = min(part, left)
        left -= whole[at]
    return parts_of(stage, whole, left)


def meanwhile(
    fields: core.native.Kept,
    moments: Sequence[core.native.Moment],
    probes: Sequence[Probe],
    connected: Connections,
) -> Meanwhile | None:
    """Summarize the moments of the daemon's thread while it worked on a request. None: unknown."""
    span = work_span(fields)
    if span is None:
        return None
    blocked, runnable, elsewhere = fields["blocked"], fields["runnable"], fields["elsewhere"]
    on_cpu = None
    marks = fields["marks"]
    if blocked is not None and runnable is not None:
        # Since the thread left the request, its time is elsewhere, and behind the span's end.
        left = fields["left"] is not None and span.end == fields["left"]
        idle = blocked + runnable + (0 if left else elsewhere or 0)
        end = min(marks.get("reply", span.end), fields["until"] or span.end)
        on_cpu = max(end - span.start - idle, 0)
    calls: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    entered: tuple[str, int] | None = None
    last = span.start
    for time, tid, _, kind, _, syscall in moments:
        if not span.start <= time <= span.end:
            continue
        last = max(last, time)
        if tid != span.tid or kind < 0 or syscall is None:
            continue
        if probes[kind].role == "sys_enter":
            entered = (syscall, time)
        elif entered is not None and entered[0] == syscall:
            calls[syscall][0] += 1
            calls[syscall][1] += time - entered[1]
            entered = None
    if entered is not None and entered[1] != span.end:  # else this call writes the reply
        calls[entered[0]][0] += 1
        whole = span.end < NO_END and len(moments) < MOST
        calls[entered[0]][1] += (span.end if whole else last) - entered[1]
    rows = sorted(
        (SyscallTime(name, n, ns) for name, (n, ns) in calls.items()), key=lambda row: -row[2]
    )
    own = [moment for moment in moments if span.start <= moment[0] <= span.end]
    addresses = peers(span, own, probes, connected, rows)
    return Meanwhile(
        on_cpu, runnable, blocked, elsewhere, fields["unsplit"], tuple(rows), peers=addresses
    )


def peers(
    span: Span,
    moments: Sequence[core.native.Moment],
    probes: Sequence[Probe],
    connected: Connections,
    calls: Sequence[SyscallTime],
) -> tuple[str, ...] | None:
    """Return the peers of the connections that a span's thread opened or used.

    A used connection is known if it was made in the recording, by whatever thread, or was open for
    all of it. None: the thread used sockets, but their peers are unknown."""
    found: dict[str, None] = {}
    for time, tid, _, kind, values, syscall in moments:
        role = probes[kind].role if tid == span.tid and kind >= 0 else ""
        if role == "connect":
            found[peer(values) or "a peer that is not known"] = None
        elif role == "sys_enter" and (address := on_connection(time, syscall, values, connected)):
            found[address] = None
    used = any(call.syscall in _SOCKETS for call in calls)
    return None if used and not found else tuple(found)


def on_connection(
    time: int, syscall: str | None, values: Sequence[int | None], connected: Connections
) -> str:
    """Return the peer of the descriptor that is a system call's first argument; "" if unknown."""
    descriptor = values[1] if syscall in _STREAMS else None
    return "" if descriptor is None else connected.at(descriptor, time)


def peer(values: Sequence[int | None]) -> str | None:
    """Return the peer's address in an event's values: "192.0.2.1:3128" or "[2001:db8::1]:80"."""
    port, first, last = values[:3]
    if port is None or first is None or last is None:
        return None
    halves = (half.to_bytes(8, "little") for half in (first, last))
    address = ipaddress.IPv6Address(b"".join(halves))
    return f"{address.ipv4_mapped}:{port}" if address.ipv4_mapped else f"[{address}]:{port}"


def column(raw: bytes, kind: str) -> array[int]:
    """Unpack a little-endian column of the core; ``kind`` is a type code of array."""
    values = array(kind)
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values
